import { OsmosisError, type UploadInfo } from "@osmosis/protocol";
import type { BlobStore } from "../../blobs/blob-store.ts";
import type { SignedUrls } from "../../blobs/signed-urls.ts";

/** Files from this size on are uploaded in parts. */
export const MULTIPART_FROM_BYTES = 64 * 1024 * 1024;
export const PART_BYTES = 32 * 1024 * 1024;

/** The part of a version's row that says where its bytes are. */
export type VersionFile = {
  readonly id: string;
  readonly version_id: string;
  readonly name: string;
  readonly size_bytes: number;
  readonly part_size: number | null;
};

/** The file as it was uploaded. */
export function sourceKey(file: Pick<VersionFile, "id" | "version_id">): string {
  return `datasets/${file.id}/${file.version_id}/source`;
}

/** The rows as rollouts get them, one `DatasetRow` a line. */
export function rowsKey(file: Pick<VersionFile, "id" | "version_id">): string {
  return `datasets/${file.id}/${file.version_id}/rows.jsonl`;
}

/** Where the parts of an upload go; empty for an upload in one piece. */
export function partKeys(file: VersionFile): string[] {
  return partSizes(file).map((_size, index) => `${sourceKey(file)}/parts/${index + 1}`);
}

function partSizes({ size_bytes: size, part_size: part }: VersionFile): number[] {
  if (part === null) return [];
  return Array.from({ length: Math.ceil(size / part) }, (_, index) => Math.min(part, size - index * part));
}

/** Tells a client how to bring the bytes. */
export function uploadOf(file: VersionFile, urls: SignedUrls): UploadInfo {
  const key = sourceKey(file);
  const sizes = partSizes(file);
  if (file.part_size === null) {
    return {
      method: "simple",
      presigned_url: urls.sign({ method: "PUT", key, maxBytes: file.size_bytes }),
      expires_in: urls.lifetimeSeconds,
      s3_key: key,
    };
  }
  const keys = partKeys(file);
  return {
    method: "multipart",
    part_size: file.part_size,
    total_parts: sizes.length,
    presigned_urls: sizes.map((size, index) => ({
      part_number: index + 1,
      presigned_url: urls.sign({ method: "PUT", key: keys[index] ?? key, maxBytes: size }),
      size,
    })),
    upload_id: file.version_id,
    s3_key: key,
  };
}

/** @throws {OsmosisError} VALIDATION that names what is missing. */
export async function checkArrived(file: VersionFile, blobs: BlobStore): Promise<void> {
  const sizes = partSizes(file);
  const expected =
    sizes.length === 0
      ? [{ key: sourceKey(file), size: file.size_bytes, what: "the file" }]
      : partKeys(file).map((key, index) => ({ key, size: sizes[index] ?? 0, what: `part ${index + 1}` }));
  for (const { key, size, what } of expected) {
    const arrived = (await blobs.stat(key))?.sizeBytes;
    if (arrived === size) continue;
    // Composed before, by a call whose answer was lost.
    if (sizes.length > 0 && (await blobs.stat(sourceKey(file)))?.sizeBytes === file.size_bytes) return;
    throw new OsmosisError(
      "VALIDATION",
      `The upload of ${file.name} is not complete: of ${what} ${arrived ?? 0} of ${size} bytes have arrived.`,
      { hint: "Upload the file again." },
    );
  }
}

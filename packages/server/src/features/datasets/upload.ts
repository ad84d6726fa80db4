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

/**
 * Where the bytes of an upload arrive, one part when it comes in one piece. Never where they stay: a URL that was given
 * out goes on to work for a while, and may not change what was read already.
 */
export function partKeys(file: VersionFile): string[] {
  return partSizes(file).map((_size, index) => `${sourceKey(file)}/parts/${index + 1}`);
}

function partSizes({ size_bytes: size, part_size: part }: VersionFile): number[] {
  if (part === null) return [size];
  return Array.from({ length: Math.ceil(size / part) }, (_, index) => Math.min(part, size - index * part));
}

/** Tells a client how to bring the bytes. */
export function uploadOf(file: VersionFile, urls: SignedUrls): UploadInfo {
  const key = sourceKey(file);
  const sizes = partSizes(file);
  const keys = partKeys(file);
  if (file.part_size === null) {
    return {
      method: "simple",
      presigned_url: urls.sign({ method: "PUT", key: keys[0] ?? key, maxBytes: file.size_bytes }),
      expires_in: urls.lifetimeSeconds,
      s3_key: key,
    };
  }
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

/**
 * Puts the file together from what has arrived. May be repeated, also by several at once.
 *
 * @throws {OsmosisError} VALIDATION that names what is missing.
 */
export async function assemble(file: VersionFile, blobs: BlobStore): Promise<void> {
  const missing = await missingPart(file, blobs);
  // A call whose answer was lost may have put it together, and deleted the parts.
  if ((await blobs.stat(sourceKey(file)))?.sizeBytes === file.size_bytes) return;
  if (missing !== undefined) throw incomplete(file, missing);
  const { sizeBytes } = await blobs.compose(sourceKey(file), partKeys(file));
  if (sizeBytes !== file.size_bytes)
    throw incomplete(file, `the file ${sizeBytes} of ${file.size_bytes} bytes`);
}

async function missingPart(file: VersionFile, blobs: BlobStore): Promise<string | undefined> {
  const sizes = partSizes(file);
  for (const [index, key] of partKeys(file).entries()) {
    const arrived = (await blobs.stat(key))?.sizeBytes ?? 0;
    const what = file.part_size === null ? "the file" : `part ${index + 1}`;
    if (arrived !== sizes[index]) return `${what} ${arrived} of ${sizes[index] ?? 0} bytes`;
  }
  return undefined;
}

function incomplete(file: VersionFile, what: string): OsmosisError {
  return new OsmosisError(
    "VALIDATION",
    `The upload of ${file.name} is not complete: of ${what} have arrived.`,
    {
      hint: "Upload the file again.",
    },
  );
}

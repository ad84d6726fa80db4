import { sql } from "kysely";
import type { Platform } from "../../platform.ts";

/** Longer than a URL for uploading is good for. */
const CANCELLED_KEPT_MS = 3600_000;
/** Longer than it takes to submit a run with what has just been replaced. */
const REPLACED_KEPT_MS = 24 * 3600_000;

type Parts = Pick<Platform, "db" | "blobs" | "now">;

/**
 * Deletes everything of cancelled uploads and of versions that a newer one has replaced and no run was submitted with,
 * and what came for an upload after it was completed.
 */
export async function deleteUnusedBytes({ db, blobs, now }: Parts, signal?: AbortSignal): Promise<void> {
  const before = (ms: number) => new Date(now().getTime() - ms);
  const versions = await db
    .selectFrom("dataset_versions as version")
    .select(["version.id", "version.dataset_id", "version.status"])
    .select(
      sql<boolean>`version.status in ('uploaded', 'error')
        and version.updated_at < ${before(REPLACED_KEPT_MS)}
        and exists (
          select 1 from dataset_versions as newer
          where newer.dataset_id = version.dataset_id and newer.number > version.number
            and newer.status = 'uploaded' and newer.updated_at < ${before(REPLACED_KEPT_MS)})
        and not exists (select 1 from runs where runs.dataset_version_id = version.id)`.as("isReplaced"),
    )
    .where("version.status", "not in", ["uploading", "processing"])
    .where("version.updated_at", "<", before(CANCELLED_KEPT_MS))
    .execute();
  for (const { id, dataset_id, status, isReplaced } of versions) {
    const isUnused = status === "cancelled" || isReplaced;
    const prefix = `datasets/${dataset_id}/${id}${isUnused ? "" : "/source/parts"}`;
    for await (const { key } of blobs.list(prefix)) {
      signal?.throwIfAborted();
      await blobs.delete(key);
    }
  }
}

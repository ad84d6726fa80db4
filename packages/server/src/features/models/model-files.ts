import { sql, type Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";

/** Where parts of files wait until they are put together. */
export const UPLOADS = "models/uploads";

/** Parts that nobody has put together for so long are deleted. */
const ABANDONED_MS = 7 * 24 * 60 * 60 * 1000;

/** Any number that no other lock of the platform uses. */
const LOCK = 0x6d6f_6466;

/**
 * Lets one transaction at a time name files of base models, or delete those that no model names. Files are known by
 * their content, so one that nobody named may be what the next import needs.
 */
export async function lockModelFiles(transaction: Kysely<Tables>): Promise<void> {
  await sql`select pg_advisory_xact_lock(${LOCK})`.execute(transaction);
}

export async function deleteAbandonedUploads({ blobs, now }: Pick<Platform, "blobs" | "now">): Promise<void> {
  const oldest = now().getTime() - ABANDONED_MS;
  for await (const { key, modifiedAt } of blobs.list(UPLOADS)) {
    if (modifiedAt.getTime() < oldest) await blobs.delete(key);
  }
}

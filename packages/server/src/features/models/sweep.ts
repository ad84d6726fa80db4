import { sql, type Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import { modelKeysInUse } from "../runs/sweep.ts";
import { deleteAbandonedUploads, lockModelFiles } from "./model-files.ts";

/** Longer than it takes to submit a run with a model that has just been replaced, or to bring all files of one. */
const UNUSED_KEPT_MS = 24 * 3600_000;

type Parts = Pick<Platform, "db" | "blobs" | "now">;

/**
 * Deletes parts of uploads that nobody has put together, and the files of base models that were replaced, or never came
 * to be, once no model, run or checkpoint needs them.
 */
export async function deleteUnusedModelFiles({ db, blobs, now }: Parts, signal?: AbortSignal): Promise<void> {
  await deleteAbandonedUploads({ blobs, now });
  const recently = new Date(now().getTime() - UNUSED_KEPT_MS);
  const changed = await db
    .selectFrom("base_models")
    .select("id")
    .where("updated_at", ">", recently)
    .limit(1)
    .execute();
  if (changed.length > 0) return;
  const named = await keysInUse(db);
  for await (const { key, modifiedAt } of blobs.list("models/files")) {
    signal?.throwIfAborted();
    if (named.has(key) || modifiedAt > recently) continue;
    await db.transaction().execute(async (transaction) => {
      // An import may have named it since; none can while this holds the lock.
      await lockModelFiles(transaction);
      if (!(await keysInUse(transaction)).has(key)) await blobs.delete(key);
    });
  }
}

async function keysInUse(db: Kysely<Tables>): Promise<Set<string>> {
  const ofBases = await db
    .selectFrom("base_models")
    .select(sql<string>`jsonb_array_elements(files) ->> 'key'`.as("key"))
    .execute();
  return new Set([...ofBases.map(({ key }) => key), ...(await modelKeysInUse(db))]);
}

import { sql, type Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import { needsItsModel, removeCheckpoints } from "../models/kept-checkpoints.ts";
import { discardShares } from "../shares/discard.ts";
import { STATES_KEPT_MS, discardStates } from "./states.ts";

/** Much longer than it takes from the end of an upload to the row that names its blob. */
const UNNAMED_KEPT_MS = 3600_000;

type Parts = Pick<Platform, "db" | "blobs" | "now">;

/**
 * Deletes what runs have and nobody needs any more: states a week after the end; shares and their weights of a run whose
 * server was killed as it ended; checkpoints that an evaluation still needed when their time had come; and blobs that no
 * row names, because a process was killed between the two, a body was replaced, or the run itself is gone.
 */
export async function deleteUnusedRunBytes(parts: Parts, signal?: AbortSignal): Promise<void> {
  await discardOldStates(parts);
  await discardEndedShares(parts);
  await removeLateCheckpoints(parts);
  await deleteUnnamedBlobs(parts, signal);
}

async function discardOldStates(parts: Parts): Promise<void> {
  const runs = await parts.db
    .selectFrom("run_files")
    .innerJoin("runs", "runs.id", "run_files.run_id")
    .select("runs.id")
    .distinct()
    .where("run_files.path", "like", "state/%")
    .where("runs.completed_at", "<", new Date(parts.now().getTime() - STATES_KEPT_MS))
    .execute();
  for (const { id } of runs) await discardStates(parts, id);
}

async function discardEndedShares(parts: Parts): Promise<void> {
  const runs = await parts.db
    .selectFrom("runs")
    .select("id")
    .where("completed_at", "is not", null)
    .where((by) =>
      by.or([
        by.exists(by.selectFrom("run_shares").select("id").whereRef("run_shares.run_id", "=", "runs.id")),
        by.exists(
          by
            .selectFrom("run_files")
            .select("key")
            .whereRef("run_files.run_id", "=", "runs.id")
            .where("run_files.path", "like", "weights/%"),
        ),
      ]),
    )
    .execute();
  for (const { id } of runs) await discardShares(parts, id);
}

async function removeLateCheckpoints({ db, blobs, now }: Parts): Promise<void> {
  const keep = sql<number>`(config -> 'advanced' ->> 'keep_checkpoints')::int`;
  const runs = await db
    .selectFrom("runs")
    .select(["id", keep.as("keep")])
    .where("kind", "=", "training")
    .where(keep, ">", 0)
    .where((by) =>
      by.exists(
        by
          .selectFrom("trained_models")
          .select("trained_models.id")
          .whereRef("trained_models.run_id", "=", "runs.id")
          .where("trained_models.files_removed_at", "is", null),
      ),
    )
    .execute();
  for (const run of runs) {
    const { keys } = await db.transaction().execute(async (transaction) => {
      await transaction.selectFrom("runs").select("id").where("id", "=", run.id).forUpdate().execute();
      return await removeCheckpoints(transaction, { runId: run.id, keep: run.keep, now: now() });
    });
    for (const key of keys) await blobs.delete(key);
  }
}

async function deleteUnnamedBlobs({ db, blobs, now }: Parts, signal?: AbortSignal): Promise<void> {
  const elsewhere = await keysOfOtherRuns(db);
  let runId = "";
  let named = new Set<string>();
  for await (const { key, modifiedAt } of blobs.list("runs")) {
    signal?.throwIfAborted();
    if (now().getTime() - modifiedAt.getTime() < UNNAMED_KEPT_MS) continue;
    const owner = key.split("/")[1] ?? "";
    if (owner !== runId) {
      runId = owner;
      named = await keysOfRun(db, runId);
    }
    // Once a blob is an hour old, nothing begins to name it that does not do so yet.
    if (!named.has(key) && !elsewhere.has(key)) await blobs.delete(key);
  }
}

async function keysOfRun(db: Kysely<Tables>, runId: string): Promise<Set<string>> {
  const files = await db.selectFrom("run_files").select("key").where("run_id", "=", runId).execute();
  const bodies = await db
    .selectFrom("run_rollouts")
    .select("body_key as key")
    .distinct()
    .where("run_id", "=", runId)
    .execute();
  const models = await db.selectFrom("trained_models").select("files").where("run_id", "=", runId).execute();
  return new Set([
    ...[...files, ...bodies].map(({ key }) => key),
    ...models.flatMap((model) => model.files.map(({ key }) => key)),
  ]);
}

/** Files of checkpoints that other runs began with, or that their checkpoints are on top of. */
async function keysOfOtherRuns(db: Kysely<Tables>): Promise<Set<string>> {
  return new Set((await modelKeysInUse(db)).filter((key) => key.startsWith("runs/")));
}

/** The keys of all model files that a run may still open, or a checkpoint needs beneath it. */
export async function modelKeysInUse(db: Kysely<Tables>): Promise<string[]> {
  const ofRuns = [];
  for (const column of ["model", "teacher"] as const) {
    ofRuns.push(...(await keysOfModels(db, column)));
  }
  const beneath = await db
    .selectFrom("trained_models")
    .select(sql<string>`jsonb_array_elements(base_files) ->> 'key'`.as("key"))
    .distinct()
    .where("files_removed_at", "is", null)
    .execute();
  return [...ofRuns, ...beneath].map(({ key }) => key);
}

function keysOfModels(db: Kysely<Tables>, column: "model" | "teacher") {
  const model = sql.ref(column);
  return db
    .selectFrom("runs")
    .select(
      sql<string>`jsonb_array_elements((${model} -> 'base_files') || (${model} -> 'adapter_files')) ->> 'key'`.as(
        "key",
      ),
    )
    .distinct()
    .where(sql<string>`${model} ->> 'type'`, "=", "local")
    .where(needsItsModel())
    .execute();
}

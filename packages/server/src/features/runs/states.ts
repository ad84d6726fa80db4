import type { Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import { discardShares } from "../shares/discard.ts";
import type { StoredFile } from "../models/tables.ts";

/** So long a replay of a run that has ended may begin with its last states rather than at its beginning. */
export const STATES_KEPT_MS = 7 * 24 * 3600_000;

/** A trainer's state after a committed step. */
export type KeptState = { readonly step: number; readonly files: readonly StoredFile[] };

/** The states of a run's committed steps that still exist, the newest last. */
export async function keptStates(db: Kysely<Tables>, runId: string): Promise<KeptState[]> {
  const { committed_steps: committed } = await db
    .selectFrom("runs")
    .select("committed_steps")
    .where("id", "=", runId)
    .executeTakeFirstOrThrow();
  const byStep = new Map<number, StoredFile[]>();
  for (const { path, ...file } of await stateRows(db, runId)) {
    const [, step = "", name = ""] = path.split("/");
    const files = byStep.get(Number(step)) ?? [];
    files.push({ name, ...file });
    byStep.set(Number(step), files);
  }
  return [...byStep]
    .filter(([step]) => step <= committed)
    .toSorted(([a], [b]) => a - b)
    .map(([step, files]) => ({ step, files }));
}

/**
 * Removes the states of a run that nobody needs any more. While it runs, the last two committed ones and the next stay;
 * after its end the last two, for a week, so that its last steps can be replayed at once. What a replay began with stays
 * until the replay has ended; its id may be given, too.
 */
export async function discardStates(
  { db, blobs, now }: Pick<Platform, "db" | "blobs" | "now">,
  runOrReplayId: string,
): Promise<void> {
  const named = await db
    .selectFrom("runs")
    .select("replay_of")
    .where("id", "=", runOrReplayId)
    .executeTakeFirst();
  const runId = named?.replay_of ?? runOrReplayId;
  await discardShares({ db, blobs }, runId);
  const old = await db.transaction().execute(async (transaction) => {
    const run = await transaction
      .selectFrom("runs")
      .select(["committed_steps", "completed_at"])
      .where("id", "=", runId)
      .forUpdate()
      .executeTakeFirst();
    if (run === undefined) return [];
    const inUse = await keysOfReplays(transaction, runId);
    const isKept = keepRule(run, now());
    const removed = (await stateRows(transaction, runId)).filter(
      ({ path, key }) => !isKept(Number(path.split("/")[1])) && !inUse.has(key),
    );
    if (removed.length === 0) return [];
    await transaction
      .deleteFrom("run_files")
      .where("run_id", "=", runId)
      .where(
        "path",
        "in",
        removed.map(({ path }) => path),
      )
      .execute();
    return removed;
  });
  // Killed here, the bytes belong to nobody: the sweep finds them.
  for (const { key } of old) await blobs.delete(key);
}

function keepRule(
  run: { readonly committed_steps: number; readonly completed_at: Date | null },
  now: Date,
): (step: number) => boolean {
  const { committed_steps: committed, completed_at: ended } = run;
  if (ended === null) return (step) => Math.abs(step - committed) <= 1;
  const isOld = now.getTime() - ended.getTime() > STATES_KEPT_MS;
  return (step) => !isOld && (step === committed || step === committed - 1);
}

function stateRows(db: Kysely<Tables>, runId: string) {
  return db
    .selectFrom("run_files")
    .select(["path", "key", "size_bytes", "sha256"])
    .where("run_id", "=", runId)
    .where("path", "like", "state/%")
    .orderBy("path")
    .execute();
}

async function keysOfReplays(db: Kysely<Tables>, runId: string): Promise<Set<string>> {
  const replays = await db
    .selectFrom("runs")
    .select("state_files")
    .where("replay_of", "=", runId)
    .where("status", "in", ["pending", "running"])
    .execute();
  return new Set(replays.flatMap(({ state_files }) => state_files.map(({ key }) => key)));
}

import { sql, type Kysely } from "kysely";
import { jsonb } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import type { StoredFile } from "./tables.ts";

/**
 * Which checkpoints of a run are kept. Everything here runs inside the transaction that changes a run's checkpoints and
 * has locked the run. The row of a removed checkpoint stays: curves, evaluations and logs name it, and whoever asks for
 * it is told what became of it.
 */

/**
 * Marks the best and the last checkpoint of a run. The best has the highest validation reward; where none was validated,
 * the highest training reward; of equals it is the earlier. A checkpoint without any reward is never the best.
 */
export async function markCheckpoints(transaction: Kysely<Tables>, runId: string): Promise<void> {
  const best = await transaction
    .selectFrom("trained_models")
    .select("id")
    .where("run_id", "=", runId)
    .where("files_removed_at", "is", null)
    .where((by) => by.or([by("reward", "is not", null), by("validation_reward", "is not", null)]))
    .orderBy("validation_reward", (order) => order.desc().nullsLast())
    .orderBy("reward", (order) => order.desc().nullsLast())
    .orderBy("step")
    .limit(1)
    .executeTakeFirst();
  await transaction
    .updateTable("trained_models")
    .set({
      is_best: sql<boolean>`id = ${best?.id ?? ""}`,
      is_last: sql<boolean>`step = (
        select max(other.step) from trained_models as other where other.run_id = ${runId})`,
    })
    .where("run_id", "=", runId)
    .execute();
}

/**
 * Takes the files of all checkpoints of a run but the newest `keep`, the best, and those in use: an evaluation that waits
 * or runs needs its model, and a training run that began with a checkpoint needs it to be replayed. With 0 all are kept.
 *
 * @returns the steps that lost their files, and the keys of the blobs to delete once the transaction is committed
 */
export async function removeCheckpoints(
  transaction: Kysely<Tables>,
  { runId, keep, now }: { readonly runId: string; readonly keep: number; readonly now: Date },
): Promise<{ readonly steps: readonly number[]; readonly keys: readonly string[] }> {
  if (keep === 0) return { steps: [], keys: [] };
  // Locked first and looked at afterwards: whoever submits a run with one of them holds a lock until its row is there.
  const locked = await transaction
    .selectFrom("trained_models")
    .select(["id", "step", "is_best"])
    .where("run_id", "=", runId)
    .where("files_removed_at", "is", null)
    .orderBy("step", "desc")
    .forUpdate()
    .execute();
  const old = locked.slice(keep).filter((model) => !model.is_best);
  if (old.length === 0) return { steps: [], keys: [] };
  const used = await modelsInUse(
    transaction,
    old.map(({ id }) => id),
  );
  const removed = old.filter(({ id }) => !used.has(id));
  const keys: string[] = [];
  for (const { id, step } of removed) {
    const { files } = await transaction
      .selectFrom("trained_models")
      .select("files")
      .where("id", "=", id)
      .executeTakeFirstOrThrow();
    await transaction
      .updateTable("trained_models")
      .set({ files: jsonb<readonly StoredFile[]>([]), files_removed_at: now })
      .where("id", "=", id)
      .execute();
    const uploads = await transaction
      .deleteFrom("run_files")
      .where("run_id", "=", runId)
      .where("path", "like", `checkpoints/${step}/%`)
      .returning("key")
      .execute();
    keys.push(...files.map(({ key }) => key), ...uploads.map(({ key }) => key));
  }
  return { steps: removed.map(({ step }) => step).toSorted((a, b) => a - b), keys: [...new Set(keys)] };
}

/** Those of the trained models that a run needs. */
export async function modelsInUse(db: Kysely<Tables>, ids: readonly string[]): Promise<Set<string>> {
  const used = new Set<string>();
  for (const column of ["model", "teacher"] as const) {
    const id = sql<string>`${sql.ref(column)} ->> 'id'`;
    const users = await db
      .selectFrom("runs")
      .select(id.as("id"))
      .distinct()
      .where(id, "in", [...ids])
      .where(needsItsModel())
      .execute();
    for (const user of users) used.add(user.id);
  }
  return used;
}

/** Whether a row of `runs` may still open its model. */
export function needsItsModel() {
  return sql<boolean>`(kind <> 'evaluation' or status in ('pending', 'running'))`;
}

import type { Kysely } from "kysely";
import { jsonb } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import type { StoredFile } from "../models/tables.ts";
import { keptStates } from "../runs/states.ts";
import type { ReplayOrder } from "../runs/tables.ts";

/** Where a replay begins: after the step `from`, whose state is in `files`; from the beginning there are none. */
export type ReplayStart = { readonly from: number; readonly files: readonly StoredFile[] };

type ReplayRun = {
  readonly id: string;
  readonly replay_of: string;
  readonly replay: ReplayOrder;
  readonly state_files: readonly StoredFile[];
};

/**
 * The start of a replay, chosen when its first worker takes it: the newest state before its step that still exists, else
 * the beginning of the run. From then on the state is kept until the replay has ended.
 */
export async function replayStart(
  { db }: { readonly db: Kysely<Tables> },
  run: ReplayRun,
): Promise<ReplayStart> {
  if (run.replay.from_step !== null) return { from: run.replay.from_step, files: run.state_files };
  return await db.transaction().execute(async (transaction) => {
    // Under this lock no state of the run is removed.
    await transaction.selectFrom("runs").select("id").where("id", "=", run.replay_of).forUpdate().execute();
    const states = await keptStates(transaction, run.replay_of);
    const newest = states.findLast(({ step }) => step < run.replay.step);
    const start = { from: newest?.step ?? 0, files: newest?.files ?? [] };
    await transaction
      .updateTable("runs")
      .set({
        replay: jsonb<ReplayOrder>({ ...run.replay, from_step: start.from }),
        state_files: jsonb(start.files),
        committed_steps: start.from,
      })
      .where("id", "=", run.id)
      .execute();
    return start;
  });
}

import type { Kysely } from "kysely";
import { jsonb, storableText } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import { queueOf } from "../../queue/job-types.ts";
import { resultsOf } from "./results.ts";
import { discardStates } from "./states.ts";
import type { RunKind, RunStatus } from "./tables.ts";

/**
 * A run goes
 *
 *     pending → running → finished | failed | stopped | crashed
 *        ↓
 *     stopped
 *
 * and is never anything again after one of the last four. While it runs, a worker holds it by a lease; between two
 * workers it has none and stays `running`. `crashed` is a training run whose workers died again and again; an
 * evaluation that ends so is `failed`.
 */
export function isFinal(status: RunStatus): boolean {
  return status !== "pending" && status !== "running";
}

export type RunEndStatus = "finished" | "failed" | "stopped" | "crashed";

type EndingRun = { readonly id: string; readonly kind: RunKind };

/**
 * Ends a run inside a transaction that has locked its row: results are fixed, the values of its own secrets are gone.
 * The caller ends the queue's job and calls {@link discardStates} when the transaction is committed.
 */
export async function endRun(
  transaction: Kysely<Tables>,
  run: EndingRun,
  end: { readonly status: RunEndStatus; readonly error: string | null; readonly at: Date },
): Promise<void> {
  const results = run.kind === "evaluation" ? await resultsOf(transaction, run.id) : null;
  await transaction
    .updateTable("runs")
    .set({
      status: end.status,
      error: end.error === null ? null : storableText(end.error),
      completed_at: end.at,
      results: results === null ? null : jsonb(results),
      lease_expires_at: null,
      state_files: jsonb([]),
    })
    .where("id", "=", run.id)
    .execute();
  await transaction.deleteFrom("run_secrets").where("run_id", "=", run.id).execute();
}

/**
 * Stops a run: at once while no worker holds it, else by asking its worker.
 *
 * @returns its status, or `stopping` while a worker has still to hear of it
 */
export async function stopRun(
  parts: Pick<Platform, "db" | "queue" | "blobs" | "now">,
  runId: string,
): Promise<string> {
  const { db, queue, now } = parts;
  const { status, kind, isEnded } = await db.transaction().execute(async (transaction) => {
    const run = await transaction
      .selectFrom("runs")
      .select(["id", "kind", "status", "lease_expires_at"])
      .where("id", "=", runId)
      .forUpdate()
      .executeTakeFirstOrThrow();
    const { kind } = run;
    if (isFinal(run.status)) return { status: run.status, kind, isEnded: false };
    if (run.status === "running" && run.lease_expires_at !== null && run.lease_expires_at > now()) {
      await transaction.updateTable("runs").set({ stop_requested: true }).where("id", "=", runId).execute();
      return { status: "stopping", kind, isEnded: false };
    }
    await endRun(transaction, run, { status: "stopped", error: null, at: now() });
    return { status: "stopped", kind, isEnded: true };
  });
  if (isEnded) {
    await queue.cancel(queueOf({ kind }), runId);
    await discardStates(parts, runId);
  }
  return status;
}

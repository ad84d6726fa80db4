import { randomUUID } from "node:crypto";
import { OsmosisError, type RolloutRecord, type workerRoutes } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { z } from "zod";
import { jsonb, storableText } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import { jsonLine } from "../../json-line.ts";
import { queueOf } from "../../queue/job-types.ts";
import type { StoredFile } from "../models/tables.ts";
import { endRun, isFinal } from "../runs/lifecycle.ts";
import { discardStates } from "../runs/states.ts";
import { lockLeasedRun, readLeasedRun, type Lease, type LeasedRun, type LeaseParts } from "./lease.ts";

/**
 * Keeps rollouts that have ended: their rows in SQL, their bodies as the lines of one blob. Those that are kept already
 * stay as they are.
 *
 * @throws {OsmosisError} CONFLICT when the lease is lost.
 */
export async function recordRollouts(
  parts: LeaseParts,
  lease: Lease,
  rollouts: readonly RolloutRecord[],
): Promise<void> {
  const { db, now } = parts;
  await readLeasedRun(db, lease, now());
  await keepRollouts(parts, { runId: lease.runId, rollouts }, async (transaction) => {
    const { worker } = await lockLeasedRun(transaction, lease, now());
    return { wanted: rollouts, shareId: null, worker };
  });
}

/** Rows of one statement: Postgres takes 65535 values in one. */
const INSERTED_AT_ONCE = 1000;

/** Which rollouts are kept, and who ran them. */
type Admitted = {
  readonly wanted: readonly RolloutRecord[];
  /** The share that they belong to; null when the holder of the run ran them. */
  readonly shareId: string | null;
  readonly worker: string | null;
};

/**
 * Writes the bodies of rollouts, then the rows of those that `admit` wants, inside the transaction in which it has locked
 * the run. What it throws leaves nothing behind.
 */
export async function keepRollouts(
  parts: LeaseParts,
  { runId, rollouts }: { readonly runId: string; readonly rollouts: readonly RolloutRecord[] },
  admit: (transaction: Kysely<Tables>) => Promise<Admitted>,
): Promise<void> {
  const { db, blobs, now } = parts;
  if (rollouts.length === 0) return;
  const key = `runs/${runId}/rollouts/${randomUUID()}.jsonl`;
  const { bytes, places } = encode(rollouts);
  await blobs.put(key, bytes);
  try {
    const inserted = await db.transaction().execute(async (transaction) => {
      const admitted = await admit(transaction);
      const rows = admitted.wanted.map((record) => ({
        ...rowOf(record),
        run_id: runId,
        body_key: key,
        body_start: places.get(record)?.start ?? 0,
        body_end: places.get(record)?.end ?? 0,
        share_id: admitted.shareId,
        worker: admitted.worker,
        created_at: now(),
      }));
      let count = 0;
      for (let from = 0; from < rows.length; from += INSERTED_AT_ONCE) {
        const added = await transaction
          .insertInto("run_rollouts")
          .values(rows.slice(from, from + INSERTED_AT_ONCE))
          .onConflict((conflict) => conflict.doNothing())
          .returning("rollout_id")
          .execute();
        count += added.length;
      }
      if (count > 0) {
        await transaction
          .updateTable("runs")
          .set({ fruitless_attempts: 0 })
          .where("id", "=", runId)
          .execute();
      }
      return count;
    });
    if (inserted === 0) await blobs.delete(key);
  } catch (error) {
    // After any other error the rows may be there all the same, as when the answer to a commit was lost. If they are not,
    // the sweep finds the bytes.
    if (error instanceof OsmosisError) await blobs.delete(key);
    throw error;
  }
}

function rowOf(record: RolloutRecord) {
  return {
    rollout_id: record.rollout_id,
    phase: record.phase,
    step: record.step,
    row_index: record.row_index,
    sample_index: record.sample_index,
    outcome: record.outcome,
    reward: record.reward,
    error: record.error === null ? null : storableText(record.error),
    prompt_tokens: record.prompt_tokens,
    completion_tokens: record.completion_tokens,
    model_calls: record.model_calls,
    prefix_breaks: record.prefix_breaks,
    duration_ms: record.duration_ms,
    // Of a training run the steps' metrics hold them.
    metrics: jsonb(record.phase === "eval" ? record.metrics : {}),
  };
}

function encode(rollouts: readonly RolloutRecord[]): {
  bytes: Uint8Array;
  places: ReadonlyMap<RolloutRecord, { start: number; end: number }>;
} {
  const lines: Buffer[] = [];
  const places = new Map<RolloutRecord, { start: number; end: number }>();
  let start = 0;
  for (const record of rollouts) {
    const line = Buffer.from(`${jsonLine(record)}\n`);
    places.set(record, { start, end: start + line.length - 2 });
    lines.push(line);
    start += line.length;
  }
  return { bytes: Buffer.concat(lines), places };
}

/**
 * Commits a training step in one transaction: its metrics, the trainer's state after it, the count of steps. A step that
 * is committed already stays as it is.
 *
 * @throws {OsmosisError} CONFLICT when the lease is lost or the step is not the next one; VALIDATION for state files that
 * were not uploaded.
 */
export async function commitStep(
  parts: LeaseParts,
  lease: Lease,
  body: z.output<NonNullable<typeof workerRoutes.commitStep.body>>,
): Promise<void> {
  const { db, now } = parts;
  await db.transaction().execute(async (transaction) => {
    const run = await lockLeasedRun(transaction, lease, now());
    if (body.step <= run.committed_steps) return;
    if (body.step !== run.committed_steps + 1) {
      throw new OsmosisError(
        "CONFLICT",
        `Step ${body.step} cannot be committed: the last committed step is ${run.committed_steps}.`,
        { hint: "Claim the run again and go on from its last committed step." },
      );
    }
    const files = await uploadedFiles(lease.runId, `state/${body.step}`, body.state_files, transaction);
    await transaction
      .insertInto("run_steps")
      .values({
        run_id: run.id,
        step: body.step,
        metrics: jsonb(body.metrics),
        examples: body.examples,
        created_at: now(),
      })
      .execute();
    await transaction
      .updateTable("runs")
      .set({
        committed_steps: body.step,
        examples: run.examples + body.examples,
        state_files: jsonb(files),
        fruitless_attempts: 0,
      })
      .where("id", "=", run.id)
      .execute();
  });
  await discardStates(parts, lease.runId);
}

/** The stored files of those names below `prefix`, in the order of the names. */
export async function uploadedFiles(
  runId: string,
  prefix: string,
  names: readonly string[],
  transaction: Kysely<Tables>,
): Promise<StoredFile[]> {
  if (names.length === 0) return [];
  const rows = await transaction
    .selectFrom("run_files")
    .select(["path", "key", "size_bytes", "sha256"])
    .where("run_id", "=", runId)
    .where(
      "path",
      "in",
      names.map((name) => `${prefix}/${name}`),
    )
    .execute();
  const found = new Map(rows.map((row) => [row.path, row]));
  return names.map((name) => {
    const row = found.get(`${prefix}/${name}`);
    if (row === undefined) {
      throw new OsmosisError("VALIDATION", `The file ${prefix}/${name} was not uploaded.`, {
        hint: "Upload every file before it is named.",
      });
    }
    return { name, key: row.key, size_bytes: row.size_bytes, sha256: row.sha256 };
  });
}

/**
 * Ends a run in the name of its worker. The worker that ended it may say so again.
 *
 * @throws {OsmosisError} CONFLICT when the lease is lost.
 */
export async function finishRun(
  parts: LeaseParts,
  lease: Lease,
  body: z.output<NonNullable<typeof workerRoutes.finish.body>>,
): Promise<void> {
  const { db, queue, now } = parts;
  const ended = await db.transaction().execute(async (transaction): Promise<LeasedRun | undefined> => {
    const run = await transaction
      .selectFrom("runs")
      .select(["status", "lease_token"])
      .where("id", "=", lease.runId)
      .forUpdate()
      .executeTakeFirst();
    if (run !== undefined && isFinal(run.status) && run.lease_token === lease.token) return undefined;
    const leased = await lockLeasedRun(transaction, lease, now());
    await endRun(transaction, leased, { ...body, at: now() });
    return leased;
  });
  if (ended === undefined) return;
  await queue.complete({ queue: queueOf(ended), id: ended.id, attempt: ended.job_attempt });
  await discardStates(parts, ended.id);
}

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
  const { db, blobs, now } = parts;
  await readLeasedRun(db, lease, now());
  if (rollouts.length === 0) return;
  const key = `runs/${lease.runId}/rollouts/${randomUUID()}.jsonl`;
  const { bytes, places } = encode(rollouts);
  await blobs.put(key, bytes);
  let inserted = 0;
  try {
    inserted = await db.transaction().execute(async (transaction) => {
      await lockLeasedRun(transaction, lease, now());
      const rows = await transaction
        .insertInto("run_rollouts")
        .values(
          rollouts.map((record, index) => ({
            run_id: lease.runId,
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
            body_key: key,
            body_start: places[index]?.start ?? 0,
            body_end: places[index]?.end ?? 0,
            created_at: now(),
          })),
        )
        .onConflict((conflict) => conflict.doNothing())
        .returning("rollout_id")
        .execute();
      if (rows.length > 0) {
        await transaction
          .updateTable("runs")
          .set({ fruitless_attempts: 0 })
          .where("id", "=", lease.runId)
          .execute();
      }
      return rows.length;
    });
  } finally {
    if (inserted === 0) await blobs.delete(key);
  }
}

function encode(rollouts: readonly RolloutRecord[]): {
  bytes: Uint8Array;
  places: { start: number; end: number }[];
} {
  const lines: Buffer[] = [];
  const places: { start: number; end: number }[] = [];
  let start = 0;
  for (const record of rollouts) {
    const line = Buffer.from(`${jsonLine(record)}\n`);
    places.push({ start, end: start + line.length - 2 });
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
    const files = await uploaded(lease.runId, `state/${body.step}`, body.state_files, transaction);
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

/**
 * Makes a trained model of uploaded files: of a step once, the newest files count.
 *
 * @returns the model's name
 */
export async function registerCheckpoint(
  parts: LeaseParts,
  lease: Lease,
  body: z.output<NonNullable<typeof workerRoutes.checkpoint.body>>,
): Promise<string> {
  const { db, blobs, now } = parts;
  const { name, replaced } = await db.transaction().execute(async (transaction) => {
    const run = await lockLeasedRun(transaction, lease, now());
    if (run.kind !== "training" || run.model.type !== "local") {
      throw new OsmosisError("VALIDATION", `The run ${run.name} trains no model.`);
    }
    const prefix = `checkpoints/${body.step}`;
    const files = await uploaded(lease.runId, prefix, body.files, transaction);
    if (files.length === 0) throw new OsmosisError("VALIDATION", "A checkpoint needs files.");
    const former = await transaction
      .selectFrom("trained_models")
      .select("files")
      .where("run_id", "=", run.id)
      .where("step", "=", body.step)
      .executeTakeFirst();
    const modelName = `${run.name}-step-${body.step}`;
    const state = {
      method: body.method,
      reward: body.reward,
      size_bytes: files.reduce((sum, file) => sum + file.size_bytes, 0),
      files: jsonb<readonly StoredFile[]>(files),
    };
    await transaction
      .insertInto("trained_models")
      .values({
        id: randomUUID(),
        workspace_id: run.workspace_id,
        run_id: run.id,
        run_name: run.name,
        name: modelName,
        base_model: run.model.base_model,
        base_files: jsonb<readonly StoredFile[]>(run.model.base_files),
        step: body.step,
        created_at: now(),
        ...state,
      })
      .onConflict((conflict) => conflict.columns(["run_id", "step"]).doUpdateSet(state))
      .execute();
    const keys = new Set(files.map((file) => file.key));
    return { name: modelName, replaced: (former?.files ?? []).filter((file) => !keys.has(file.key)) };
  });
  for (const { key } of replaced) await blobs.delete(key);
  return name;
}

/** The stored files of those names below `prefix`, in the order of the names. */
async function uploaded(
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

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { OsmosisError } from "@osmosis/protocol";
import type { BlobStore } from "../../blobs/blob-store.ts";
import type { Platform } from "../../platform.ts";
import { rowsKey } from "../datasets/upload.ts";
import { lockLeasedRun, readLeasedRun, type Lease, type LeasedRun, type LeaseParts } from "./lease.ts";

const FILE_PATH = /^((state|checkpoints)\/[1-9]|weights\/\d)\d{0,8}\/[^/]+$/;

/**
 * Stores a file of a run. Each upload has a blob of its own, so that a worker which lost the run cannot write into the
 * file of its successor; the path points to the last that was uploaded under the lease.
 *
 * @throws {OsmosisError} VALIDATION for other paths; CONFLICT when the lease is lost.
 */
export async function putRunFile(
  parts: LeaseParts,
  lease: Lease,
  file: {
    readonly path: string;
    readonly body: ReadableStream<Uint8Array> | null;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { db, blobs, now } = parts;
  if (!FILE_PATH.test(file.path)) {
    throw new OsmosisError("VALIDATION", `${JSON.stringify(file.path)} is not a path of a run's file.`, {
      hint: "Use state/<step>/<name>, checkpoints/<step>/<name> or weights/<version>/<name>.",
    });
  }
  await readLeasedRun(db, lease, now());
  const key = `runs/${lease.runId}/files/${file.path}/${randomUUID()}`;
  const stored = await blobs.put(key, file.body ?? new Uint8Array(), { signal: file.signal });
  try {
    const replaced = await db.transaction().execute(async (transaction) => {
      const run = await lockLeasedRun(transaction, lease, now());
      const former = await transaction
        .selectFrom("run_files")
        .select("key")
        .where("run_id", "=", lease.runId)
        .where("path", "=", file.path)
        .executeTakeFirst();
      const state = { key, size_bytes: stored.sizeBytes, sha256: stored.sha256 };
      await transaction
        .insertInto("run_files")
        .values({ run_id: lease.runId, path: file.path, ...state })
        .onConflict((conflict) => conflict.columns(["run_id", "path"]).doUpdateSet(state))
        .execute();
      // A checkpoint's former files belong to its model until it is registered again.
      const isInUse =
        file.path.startsWith("checkpoints/") || run.state_files.some((one) => one.key === former?.key);
      return isInUse ? undefined : former?.key;
    });
    if (replaced !== undefined) await blobs.delete(replaced);
  } catch (error) {
    // After any other error the row may be there all the same; if it is not, the sweep finds the bytes.
    if (error instanceof OsmosisError) await blobs.delete(key);
    throw error;
  }
}

/** The rows of a run, one `DatasetRow` a line; of an evaluation those that were selected, in order. */
export async function streamRows(
  { blobs }: Pick<Platform, "blobs">,
  run: LeasedRun,
): Promise<ReadableStream<Uint8Array>> {
  const key = rowsKey({ id: run.dataset_id, version_id: run.dataset_version_id });
  const found = await blobs.get(key);
  if (found === undefined) {
    throw new OsmosisError("NOT_FOUND", `The rows of the data set ${run.dataset_name} are gone.`, {
      hint: "Upload the data set again, and submit the run again.",
    });
  }
  return run.row_indexes === null ? found.body : streamOf(selected(found.body, run.row_indexes));
}

async function* selected(
  body: ReadableStream<Uint8Array>,
  rowIndexes: readonly number[],
): AsyncGenerator<Uint8Array> {
  // Node's and the DOM's declarations of the same web stream differ in name only.
  const input = Readable.fromWeb(body as import("node:stream/web").ReadableStream);
  const wanted = new Set(rowIndexes);
  let row = 0;
  let given = 0;
  for await (const line of createInterface({ input, crlfDelay: Infinity })) {
    if (wanted.has(row)) {
      given += 1;
      yield Buffer.from(`${line}\n`);
    }
    if (given === wanted.size) break;
    row += 1;
  }
  input.destroy();
}

/**
 * The recorded rollouts that no committed step has used, one `RolloutRecord` a line, in the order of recording. Of an
 * evaluation these are all.
 */
export async function streamRollouts(
  { db, blobs, now }: Pick<Platform, "db" | "blobs" | "now">,
  lease: Lease,
): Promise<ReadableStream<Uint8Array>> {
  const run = await readLeasedRun(db, lease, now());
  const rows = await db
    .selectFrom("run_rollouts")
    .select(["body_key", "body_start", "body_end"])
    .where("run_id", "=", run.id)
    .where("step", ">", lastUsedStep(run))
    .orderBy("number")
    .execute();
  return streamOf(bodies(blobs, rows));
}

/**
 * The training rollouts of a step of the run that a replay repeats, one `RolloutRecord` a line, in the order of recording.
 *
 * @throws {OsmosisError} VALIDATION for a run that is no replay.
 */
export async function streamStepRollouts(
  { db, blobs, now }: Pick<Platform, "db" | "blobs" | "now">,
  lease: Lease,
  step: number,
): Promise<ReadableStream<Uint8Array>> {
  const run = await readLeasedRun(db, lease, now());
  if (run.replay_of === null || !Number.isSafeInteger(step)) {
    throw new OsmosisError("VALIDATION", `The run ${run.name} replays no step ${step}.`);
  }
  const rows = await db
    .selectFrom("run_rollouts")
    .select(["body_key", "body_start", "body_end"])
    .where("run_id", "=", run.replay_of)
    .where("phase", "=", "train")
    .where("step", "=", step)
    .orderBy("number")
    .execute();
  return streamOf(bodies(blobs, rows));
}

/** Rollouts of an evaluation have step 0. */
function lastUsedStep(run: LeasedRun): number {
  return run.kind === "evaluation" ? -1 : run.committed_steps;
}

/** Where the body of a rollout is. */
type Place = { body_key: string; body_start: number; body_end: number };

/** Their bodies, one a line. */
export async function* bodies(blobs: BlobStore, places: readonly Place[]): AsyncGenerator<Uint8Array> {
  for (const { body_key, body_start, body_end } of joined(places)) {
    const found = await blobs.get(body_key, { start: body_start, end: body_end });
    if (found === undefined) throw new Error(`the blob ${body_key} is gone`);
    yield* found.body;
    yield Buffer.from("\n");
  }
}

/** Lines that follow each other in one blob are read at once. */
function joined(places: readonly Place[]): Place[] {
  const result: Place[] = [];
  for (const place of places) {
    const last = result.at(-1);
    if (last !== undefined && last.body_key === place.body_key && last.body_end + 2 === place.body_start) {
      last.body_end = place.body_end;
    } else {
      result.push({ ...place });
    }
  }
  return result;
}

function streamOf(chunks: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  // Node's and the DOM's declarations of the same web stream differ in name only.
  return Readable.toWeb(Readable.from(chunks, { objectMode: false })) as ReadableStream<Uint8Array>;
}

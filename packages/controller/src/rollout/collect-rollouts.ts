/**
 * Runs many rollouts, a bounded number at a time. What was recorded before is not run again; what is run is durable
 * before it counts. The result has the order of the tasks, whatever the order of arrival.
 */
import { isScored } from "@osmosis/protocol";
import type { DatasetRow, RolloutRecord } from "@osmosis/protocol";
import { deadlineOf } from "../deadline.ts";

export type RolloutTask = { readonly row: DatasetRow; readonly sampleIndex: number };

export type CollectOptions = {
  /** Rollouts in flight at most. */
  readonly concurrency: number;
  /** The record of an earlier life of the run, if there is one. */
  readonly recordedOf: (task: RolloutTask) => RolloutRecord | undefined;
  readonly drive: (task: RolloutTask, signal: AbortSignal) => Promise<RolloutRecord>;
  /** Resolves when the rollouts are durable. */
  readonly record: (rollouts: readonly RolloutRecord[]) => Promise<void>;
  /** Sees every rollout that was run, in the order of arrival; a text stops the others and the run. */
  readonly stopReason: (rollout: RolloutRecord) => string | undefined;
  /** Told about every rollout that was run, once it is durable. */
  readonly ended?: (rollout: RolloutRecord) => void;
  readonly signal: AbortSignal;
};

export type Collected =
  | { readonly type: "complete"; readonly rollouts: readonly RolloutRecord[] }
  | { readonly type: "stopped"; readonly reason: string };

/** @throws the signal's reason, or whatever `record` threw; rollouts under way are cancelled first. */
export async function collectRollouts(
  tasks: readonly RolloutTask[],
  options: CollectOptions,
): Promise<Collected> {
  const rollouts: (RolloutRecord | undefined)[] = tasks.map(options.recordedOf);
  const missing = tasks.flatMap((task, index) => (rollouts[index] === undefined ? [{ task, index }] : []));
  // All workers draw from one iterator.
  const queue = missing.values();
  const stop = new AbortController();
  using bounds = deadlineOf([options.signal, stop.signal]);
  const { signal } = bounds;
  const write = batchedWriter(options.record);
  let reason: string | undefined;

  async function work(): Promise<void> {
    for (const { task, index } of queue) {
      signal.throwIfAborted();
      const rollout = await options.drive(task, signal);
      await write(rollout);
      rollouts[index] = rollout;
      options.ended?.(rollout);
      reason ??= options.stopReason(rollout);
      if (reason !== undefined) stop.abort(new DOMException(reason, "AbortError"));
    }
  }

  const workers = Array.from({ length: Math.min(options.concurrency, missing.length) }, async () => {
    try {
      await work();
    } catch (error) {
      // The first failure ends the others; each still waits for its own rollout to be cancelled.
      if (!stop.signal.aborted) stop.abort(error);
      throw error;
    }
  });
  const results = await Promise.allSettled(workers);
  options.signal.throwIfAborted();
  if (reason !== undefined) return { type: "stopped", reason };
  if (results.some(({ status }) => status === "rejected")) throw stop.signal.reason;
  return { type: "complete", rollouts: rollouts.filter((rollout) => rollout !== undefined) };
}

/** Writes what has gathered while the last write was under way in one go. */
function batchedWriter(
  record: (rollouts: readonly RolloutRecord[]) => Promise<void>,
): (rollout: RolloutRecord) => Promise<void> {
  let waiting: RolloutRecord[] = [];
  let batch: Promise<void> | undefined;
  let writing: Promise<void> = Promise.resolve();
  return (rollout) => {
    waiting.push(rollout);
    batch ??= writing = writing
      .catch(() => undefined)
      .then(() => {
        const rollouts = waiting;
        waiting = [];
        batch = undefined;
        return record(rollouts);
      });
    return batch;
  };
}

/** Stops a run after `limit` rollouts in a row that ended without a reward. */
export function failureGuard(limit: number): (rollout: RolloutRecord) => string | undefined {
  let inARow = 0;
  return ({ outcome, error }) => {
    inARow = isScored(outcome) ? 0 : inARow + 1;
    if (inARow < limit) return undefined;
    return `${inARow} rollouts in a row ended without a reward; the last one with the outcome ${outcome}: ${error ?? "no message"}`;
  };
}

/** Why none of the rollouts has a reward: the commonest outcome and its message; undefined when one has. */
export function noneScored(rollouts: readonly RolloutRecord[]): string | undefined {
  if (rollouts.some(({ outcome }) => isScored(outcome))) return undefined;
  const counts = new Map<string, number>();
  for (const { outcome, error } of rollouts) {
    const key = `${outcome}: ${error ?? "no message"}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const [commonest] = [...counts].sort(([, a], [, b]) => b - a);
  const detail =
    commonest === undefined ? "" : ` Most often (${commonest[1]}) they ended with ${commonest[0]}`;
  return `None of the ${rollouts.length} rollouts has a reward.${detail}`;
}

/** Finds records of an earlier life of the run by what they are a rollout of; a scored one wins over another. */
export function recordIndex(
  recorded: readonly RolloutRecord[],
  { phase, step }: Pick<RolloutRecord, "phase" | "step">,
): (task: RolloutTask) => RolloutRecord | undefined {
  const index = new Map<string, RolloutRecord>();
  for (const rollout of recorded) {
    if (rollout.phase !== phase || rollout.step !== step) continue;
    const key = `${rollout.row_index}/${rollout.sample_index}`;
    if (!index.has(key) || isScored(rollout.outcome)) index.set(key, rollout);
  }
  return ({ row, sampleIndex }) => index.get(`${row.row_index}/${sampleIndex}`);
}

/**
 * Runs many rollouts, as many at a time as the pool has places. What was recorded before is not run again; what is run is
 * durable before it counts. The result has the order of the tasks, whatever the order of arrival.
 *
 * A task may be executed several times: where the group policy runs a failed rollout again, and where what was recorded
 * is no use any more. Each execution is a record of its own.
 */
import { isInfrastructureFailure, isScored } from "@osmosis/protocol";
import type { DatasetRow, RolloutRecord } from "@osmosis/protocol";
import { deadlineOf } from "../deadline.ts";
import type { DurableWriter } from "./durable-writer.ts";
import { countingOf } from "./recorded-rollouts.ts";
import type { RecordedRollouts } from "./recorded-rollouts.ts";
import type { RolloutPool } from "./rollout-pool.ts";

export type RolloutTask = { readonly row: DatasetRow; readonly sampleIndex: number };

/** Turns a task into a record; `execution` counts from 0 how often the task was executed before. */
export type Drive<Task extends RolloutTask = RolloutTask> = (
  task: Task,
  execution: number,
  signal: AbortSignal,
) => Promise<RolloutRecord>;

export type CollectOptions = {
  readonly pool: RolloutPool;
  /** In the pool, rollouts of a smaller rank go first. */
  readonly rank: number;
  readonly recordedOf: RecordedRollouts;
  /** False for a recorded rollout that may not be used, so that the task is executed again. */
  readonly isUsable?: (recorded: RolloutRecord) => boolean;
  /** How often a rollout is run again whose failure may not happen twice. */
  readonly retries?: number;
  readonly drive: Drive;
  readonly write: DurableWriter;
  /** Sees every rollout that was run, in the order of arrival; a text stops the others and the run. */
  readonly stopReason: (rollout: RolloutRecord) => string | undefined;
  /** Told about every rollout that was run, once it is durable. */
  readonly ended?: (rollout: RolloutRecord) => void;
  /** What is kept in memory of a rollout that was run, once it is durable; by default all of it. */
  readonly kept?: (rollout: RolloutRecord) => RolloutRecord;
  readonly signal: AbortSignal;
};

export type Collected =
  | {
      readonly type: "complete";
      /** One for each task, in their order. */
      readonly rollouts: readonly RolloutRecord[];
      /** Executions that another execution of the same task has replaced. */
      readonly replaced: readonly RolloutRecord[];
    }
  | { readonly type: "stopped"; readonly reason: string };

/** @throws the signal's reason, or whatever `write` threw; rollouts under way are cancelled first. */
export async function collectRollouts(
  tasks: readonly RolloutTask[],
  options: CollectOptions,
): Promise<Collected> {
  const { pool, rank, isUsable = () => true, retries = 0 } = options;
  const stop = new AbortController();
  using bounds = deadlineOf([options.signal, stop.signal]);
  const { signal } = bounds;
  let reason: string | undefined;

  async function execute(task: RolloutTask, execution: number): Promise<RolloutRecord> {
    signal.throwIfAborted();
    const rollout = await options.drive(task, execution, signal);
    await options.write(rollout);
    options.ended?.(rollout);
    reason ??= options.stopReason(rollout);
    if (reason !== undefined) stop.abort(new DOMException(reason, "AbortError"));
    return options.kept?.(rollout) ?? rollout;
  }

  /** All executions of the task that may be used, of earlier lives and of this one. */
  async function executionsOf(task: RolloutTask): Promise<RolloutRecord[]> {
    const recorded = options.recordedOf(task);
    const executions = recorded.filter(isUsable);
    const isEnough = (): boolean => !isWanted(countingOf(executions), executions.length, retries);
    if (isEnough()) return executions;
    return pool.run({ rank, signal }, async () => {
      for (let execution = recorded.length; !isEnough(); execution++) {
        executions.push(await execute(task, execution));
      }
      return executions;
    });
  }

  const results = await Promise.allSettled(
    tasks.map(async (task) => {
      try {
        return await executionsOf(task);
      } catch (error) {
        // The first failure ends the others; each still waits for its own rollout to be cancelled.
        if (!stop.signal.aborted) stop.abort(error);
        throw error;
      }
    }),
  );
  options.signal.throwIfAborted();
  if (reason !== undefined) return { type: "stopped", reason };
  const executions = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  if (executions.length < tasks.length) throw stop.signal.reason;
  const rollouts = executions.map(countingOf).filter((rollout) => rollout !== undefined);
  const counting = new Set(rollouts);
  return { type: "complete", rollouts, replaced: executions.flat().filter((one) => !counting.has(one)) };
}

/** Whether the task has to be executed (again). */
function isWanted(counting: RolloutRecord | undefined, executions: number, retries: number): boolean {
  if (counting === undefined) return true;
  return mayHelpToRepeat(counting) && executions <= retries;
}

/** True when the failure lies with the surroundings, or took too long: the same rollout may succeed at another time. */
function mayHelpToRepeat({ outcome }: RolloutRecord): boolean {
  return !isScored(outcome) && (isInfrastructureFailure(outcome) || outcome === "timeout");
}

/**
 * Rolls steps out ahead of the trainer, at most `max_staleness` of them.
 *
 * The rollouts of step t may begin as soon as the weights after step t - 1 - k are published, and step t trains when they
 * have all ended and step t - 1 has trained. So k + 1 steps are in flight, and no token that step t trains on is older
 * than k updates. A rollout goes on while weights are published: its next model call has the newer ones.
 *
 * All of them draw from one pool, older steps first. Validation draws from it, too, beside the rollouts of later steps:
 * the trainer waits for it before it publishes other weights, so all of it has exactly those of its step.
 *
 * What goes wrong in one step ends all others; the trainer hears of it when it takes the next step.
 */
import type { RolloutRecord } from "@osmosis/protocol";
import { deadlineOf } from "../deadline.ts";
import type { Collected } from "../rollout/collect-rollouts.ts";
import { batchedWriter } from "../rollout/durable-writer.ts";
import { failureGuard, takenWith } from "../rollout/failure-guard.ts";
import { openRolloutPool } from "../rollout/rollout-pool.ts";
import type { RowSplit } from "./held-out.ts";
import { trainingRollouts, validationRollouts } from "./step-rollouts.ts";
import type { StepRollouts } from "./step-rollouts.ts";
import type { TrainRunOptions } from "./train-options.ts";

type Stopped = Extract<Collected, { type: "stopped" }>;

/** A step's rollouts, and how far the others were when it was taken. */
export type TakenStep = StepRollouts & {
  /** From the moment at which they could begin to their end. */
  readonly rolloutSeconds: number;
  /** Training rollouts of later steps that have ended already. */
  readonly ahead: number;
  /** Rollouts that have a place in the pool. */
  readonly inFlight: number;
};

export type StepPipeline = AsyncDisposable & {
  /** Says that the weights after `step` are those of the sampler; begins what may now begin. */
  published(step: number, weightsVersion: number): void;
  /** The rollouts of the step; in their order, each once. */
  take(step: number): Promise<TakenStep | Stopped>;
  /** The held-out rows with the weights that the sampler has, those after `step`. */
  validate(step: number): Promise<Collected>;
};

/** For each step that may be in flight. */
const DEFAULT_CONCURRENCY = 128;

export function openStepPipeline(
  options: TrainRunOptions,
  { split, totalSteps }: { readonly split: RowSplit; readonly totalSteps: number },
): StepPipeline {
  const { config, clock, committedSteps } = options;
  const { asynchronous, max_staleness: cap, max_consecutive_failures: limit } = config.advanced;
  const lookahead = asynchronous ? cap : 0;
  const pool = openRolloutPool(options.concurrency ?? DEFAULT_CONCURRENCY * (lookahead + 1));
  const stop = new AbortController();
  const bounds = deadlineOf([options.signal, stop.signal]);
  const guard = failureGuard(limit, takenWith(options.server));
  const inFlight = new Map<number, Promise<StepRollouts & { rolloutSeconds: number }>>();
  const endedOfStep = new Map<number, number>();
  let firstWeights: number | undefined;
  let newestWeights = 0;
  let stopped: Stopped | undefined;

  const shared = {
    ...options,
    split,
    pool,
    write: batchedWriter(options.ports.record),
    signal: bounds.signal,
    stopReason(rollout: RolloutRecord): string | undefined {
      const { phase, step } = rollout;
      if (phase === "train") endedOfStep.set(step, (endedOfStep.get(step) ?? 0) + 1);
      return guard(rollout);
    },
  };

  /** Ends everything when the work stops the run, or throws. */
  async function orEnd<Result>(work: Promise<Result | Stopped>): Promise<Result> {
    try {
      const result = await work;
      if (!isStopped(result)) return result;
      stopped ??= result;
      throw new DOMException(result.reason, "AbortError");
    } catch (error) {
      if (!stop.signal.aborted) stop.abort(error);
      throw error;
    }
  }

  async function rollOut(step: number): Promise<StepRollouts & { rolloutSeconds: number }> {
    const startedAt = clock.now();
    const oldestWeights = (firstWeights ?? 0) + (step - 1 - committedSteps) - lookahead;
    const rollouts = await orEnd<StepRollouts>(trainingRollouts({ ...shared, step, oldestWeights }));
    return { ...rollouts, rolloutSeconds: (clock.now() - startedAt) / 1000 };
  }

  async function unlessStopped<Result>(work: Promise<Result>): Promise<Result | Stopped> {
    try {
      return await work;
    } catch (error) {
      options.signal.throwIfAborted();
      if (stopped !== undefined) return stopped;
      throw error;
    }
  }

  return {
    published(step, weightsVersion) {
      firstWeights ??= weightsVersion;
      newestWeights = weightsVersion;
      for (let next = committedSteps + 1; next <= Math.min(step + 1 + lookahead, totalSteps); next++) {
        if (next <= step || inFlight.has(next)) continue;
        const work = rollOut(next);
        // Whoever takes the step hears of it.
        work.catch(() => {});
        inFlight.set(next, work);
      }
    },

    take: (step) =>
      unlessStopped(
        (async () => {
          const work = inFlight.get(step);
          if (work === undefined) throw new Error(`step ${step} was never begun`);
          const rollouts = await work;
          inFlight.delete(step);
          endedOfStep.delete(step);
          const ahead = [...endedOfStep.values()].reduce((sum, count) => sum + count, 0);
          return { ...rollouts, ahead, inFlight: pool.running() };
        })(),
      ),

    validate: (step) =>
      unlessStopped(
        orEnd<Extract<Collected, { type: "complete" }>>(
          validationRollouts({ ...shared, step, oldestWeights: newestWeights }),
        ),
      ),

    async [Symbol.asyncDispose]() {
      if (!stop.signal.aborted) stop.abort(new DOMException("The run has ended.", "AbortError"));
      await Promise.allSettled(inFlight.values());
      bounds[Symbol.dispose]();
    },
  };
}

function isStopped(result: unknown): result is Stopped {
  return typeof result === "object" && result !== null && "type" in result && result.type === "stopped";
}

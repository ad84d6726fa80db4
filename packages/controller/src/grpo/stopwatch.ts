import type { RolloutRecord } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import type { TrainingBatch } from "./batch.ts";
import type { Metrics } from "./metrics.ts";

export type StepPhase = "rollout" | "wait_for_batch" | "train" | "update_weights" | "validation";

/** Takes the time of a step's phases. */
export type Stopwatch = {
  time<Result>(phase: StepPhase, work: () => Promise<Result>): Promise<Result>;
  /** Writes down the time of a phase that somebody else took. */
  took(phase: StepPhase, seconds: number): void;
  /** What a phase has taken; 0 when it has not been. */
  seconds(phase: StepPhase): number;
  /** Seconds by phase so far, and tokens per second. */
  metrics(rollouts: readonly RolloutRecord[], batch: TrainingBatch): Metrics;
};

/** `recorded` are rollouts of an earlier life of the run: they took none of the time. */
export function createStopwatch(clock: Clock, recorded: readonly RolloutRecord[]): Stopwatch {
  const startedAt = clock.now();
  const known = new Set(recorded);
  const seconds: Partial<Record<StepPhase, number>> = {};
  return {
    async time(phase, work) {
      const before = clock.now();
      const result = await work();
      seconds[phase] = (clock.now() - before) / 1000;
      return result;
    },
    seconds: (phase) => seconds[phase] ?? 0,
    took: (phase, value) => void (seconds[phase] = value),
    metrics(rollouts, batch) {
      const run = rollouts.filter((rollout) => !known.has(rollout));
      const sampledTokens = run.reduce((sum, { completion_tokens }) => sum + completion_tokens, 0);
      const trainedTokens = batch.data_B.reduce((sum, { tokens_T }) => sum + tokens_T.length, 0);
      return {
        ...Object.fromEntries(Object.entries(seconds).map(([phase, value]) => [`perf/${phase}_time`, value])),
        "perf/step_time": (clock.now() - startedAt) / 1000,
        "perf/sample_tokens_per_second": sampledTokens / (seconds.rollout ?? 0),
        "perf/rollouts_per_minute": (60 * run.length) / (seconds.rollout ?? 0),
        "perf/train_tokens_per_second": trainedTokens / (seconds.train ?? 0),
      };
    },
  };
}

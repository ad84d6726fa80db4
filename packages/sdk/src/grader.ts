import type { RolloutSample } from "./sample.ts";

/** What a grader is given for one sample. */
export type GraderContext<Config = undefined> = {
  readonly rolloutId: string;
  /** What the workflow produced. */
  readonly sample: RolloutSample;
  /** The data set row's ground truth. */
  readonly label: string | null;
  /** A copy of the backend's `graderConfig`, this execution's own. */
  readonly config: Config;
  readonly metadata: Readonly<Record<string, unknown>> | null;
  /** The same folder that the workflow had. */
  readonly artifactsDir: string | null;
  /** Aborts when the rollout is cancelled or out of time; hand it to whatever waits. */
  readonly signal: AbortSignal;
  /**
   * Sets the reward, usually between 0 and 1; the last call wins.
   *
   * @throws OsmosisError `VALIDATION` when it is not a finite number.
   */
  setReward(reward: number): void;
  /**
   * Adds metrics to the sample, shown with the run.
   *
   * @throws OsmosisError `VALIDATION` when one is not a finite number.
   */
  addMetrics(metrics: Readonly<Record<string, number>>): void;
  /** Asks that the sample be left out of training; it then needs no reward. */
  removeSample(): void;
};

/**
 * Scores a sample: extend it and implement `grade`, which calls `ctx.setReward` or returns the reward. It is constructed
 * anew for every rollout, without arguments. A grader that throws or leaves no reward fails the rollout: that is never
 * counted as a reward of 0.
 *
 * @example
 * class ExactMatch extends Grader {
 *   grade(ctx: GraderContext) {
 *     ctx.setReward(lastAssistantText(ctx.sample.messages).trim() === ctx.label ? 1 : 0);
 *   }
 * }
 */
export abstract class Grader<Config = undefined> {
  abstract grade(ctx: GraderContext<Config>): Promise<number | void> | number | void;
}

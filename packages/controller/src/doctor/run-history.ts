import type {
  Finding,
  OutcomeCounts,
  RolloutOutcome,
  TrainingRunConfig,
  TrainingStatus,
} from "@osmosis/protocol";
import { LEARNED_PASS_RATE, LEAST_STEPS } from "./thresholds.ts";

/** What the doctor knows about a run; times in milliseconds. */
export type RunHistory = {
  readonly status: TrainingStatus;
  readonly error: string | null;
  readonly now: number;
  readonly createdAt: number;
  /** Null while no worker had it. */
  readonly startedAt: number | null;
  /** When a worker last said that it is alive; null while none holds the run. */
  readonly heartbeatAt: number | null;
  /** How long a heartbeat keeps a run. */
  readonly leaseSeconds: number;
  /** How often it was handed to a worker. */
  readonly attempts: number;
  readonly config: Pick<TrainingRunConfig, "training" | "advanced">;
  /** Committed steps, in order: the first, the newest and the validated ones at least. */
  readonly steps: readonly CommittedStep[];
  /** Training rollouts of the step under way. */
  readonly open: { readonly rollouts: number; readonly rewarded: number; readonly newestAt: number | null };
  /** Rollouts that ended in the last `ABORTED_MINUTES`. */
  readonly recent: OutcomeCounts;
  /** The newest rollouts of each outcome. */
  readonly examples: Readonly<Partial<Record<RolloutOutcome, Finding["rollouts"]>>>;
  /** Some rows that the newest steps rewarded and never passed, those with most rollouts first; one rollout of each. */
  readonly neverPassed: readonly {
    readonly row: number;
    readonly rollouts: number;
    readonly example: Finding["rollouts"][number];
  }[];
};

export type CommittedStep = {
  readonly step: number;
  readonly committedAt: number;
  readonly metrics: Readonly<Record<string, number>>;
};

/** Looks at a run, and answers with what is wrong or could be better. */
export type Rule = {
  readonly name: string;
  readonly check: (history: RunHistory) => Omit<Finding, "rule" | "severity"> | undefined;
};

/** The values of a metric in the newest steps that have one. */
export function newest({ steps }: RunHistory, key: string, count: number): number[] {
  const values: number[] = [];
  for (let index = steps.length - 1; index >= 0 && values.length < count; index--) {
    const value = steps[index]?.metrics[key];
    if (value !== undefined) values.unshift(value);
  }
  return values;
}

/** True when hardly anything is left to learn: then much that is else a bad sign is none. */
export function hasLearned(history: RunHistory): boolean {
  return mean(newest(history, "rollout/pass_rate", LEAST_STEPS)) >= LEARNED_PASS_RATE;
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return Number.isInteger(middle)
    ? ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2
    : (sorted[Math.floor(middle)] ?? Number.NaN);
}

/** The newest so many committed steps, as a finding names them. */
export function lastSteps({ steps }: RunHistory, count: number): Finding["steps"] {
  const first = steps.at(-Math.min(count, steps.length));
  const last = steps.at(-1);
  return first === undefined || last === undefined ? null : { first: first.step, last: last.step };
}

export function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

/** `90 s`, `12 min`, `3.5 h`. */
export function span(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

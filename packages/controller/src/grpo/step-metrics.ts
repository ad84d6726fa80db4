import type { RolloutOutcome, RolloutRecord } from "@osmosis/protocol";
import { metricValues } from "../evaluation/results.ts";
import { finite, rolloutMetrics } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import { isAllSame } from "./step-plan.ts";
import type { TakenStep } from "./step-pipeline.ts";
import { groupsOf } from "./step-rollouts.ts";

/** All rollouts that were run for a step: those of its prompts, those that replaced groups, and those run again. */
export function everyRollout({ first_P, refill_P, replaced }: TakenStep): RolloutRecord[] {
  return [...first_P.flat(), ...refill_P.flat(), ...replaced];
}

/**
 * What a step's rollouts say about the policy, and what it took to have them: what was replaced and run again, how stale
 * they are, how long the trainer waited.
 */
export function rolledOutMetrics(
  taken: TakenStep,
  facts: {
    /** Version that the step trains. */
    readonly weightsVersion: number;
    readonly temperature: number;
    /** How long the trainer waited for the step's rollouts. */
    readonly waitSeconds: number;
  },
): Metrics {
  const every = everyRollout(taken);
  return finite({
    ...rolloutMetrics(groupsOf(taken.first_P), facts),
    "rollout/ended": every.length,
    ...countsOf((outcome) => `rollout/ended/${outcome}`, every),
    "rollout/retries": taken.replaced.length,
    ...countsOf((outcome) => `rollout/retries/${outcome}`, taken.replaced),
    ...selectionMetrics(taken),
    ...componentMetrics(taken.first_P.flat()),
    ...stalenessMetrics(every, facts.weightsVersion),
    "rollout/queue_depth": taken.ahead,
    "rollout/in_flight": taken.inFlight,
    "perf/rollout_overlap": Math.max(0, 1 - facts.waitSeconds / taken.rolloutSeconds),
  });
}

function countsOf(
  keyOf: (outcome: RolloutOutcome) => string,
  rollouts: readonly RolloutRecord[],
): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of rollouts) {
    const key = keyOf(outcome);
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

/** What selection did. Rewards of selected groups are no measure of the policy: they never agree. */
function selectionMetrics({ first_P, refill_P, trained_P, wanted }: TakenStep): Record<string, number> {
  const rolled_P = [...first_P, ...refill_P];
  const trained = new Set(trained_P);
  const leftOut = rolled_P.filter((group) => !trained.has(group));
  return {
    "rollout/selected/groups": trained_P.length,
    "rollout/selected/reward": mean(rewardsOf(trained_P.flat())),
    "rollout/dropped/all_same": leftOut.filter((group) => isAllSame(group)).length,
    "rollout/dropped/policy": leftOut.filter((group) => !isAllSame(group)).length,
    ...(wanted === undefined
      ? {}
      : {
          "rollout/refill/groups": refill_P.length,
          "rollout/refill/cap_reached": trained_P.length < wanted ? 1 : 0,
        }),
  };
}

/** The numbers that a grader gave beside the reward; over the rewarded rollouts that have them. */
function componentMetrics(rollouts: readonly RolloutRecord[]): Record<string, number> {
  return Object.fromEntries(
    [...metricValues(rollouts)].flatMap(([name, given]) => {
      const average = mean(given);
      return [
        [`rollout/component/${name}/mean`, average],
        [`rollout/component/${name}/std`, Math.sqrt(mean(given.map((value) => (value - average) ** 2)))],
        [`rollout/component/${name}/n`, given.length],
      ];
    }),
  );
}

function stalenessMetrics(
  rollouts: readonly RolloutRecord[],
  weightsVersion: number,
): Record<string, number> {
  const sampled = rollouts.filter(({ completion_tokens: tokens }) => tokens > 0);
  const ages = sampled.map((rollout) => Math.max(0, weightsVersion - rollout.weights_version_min));
  return {
    "rollout/staleness/mean": mean(ages),
    "rollout/staleness/max": ages.reduce((most, age) => Math.max(most, age), -Infinity),
    "rollout/mixed_versions": mean(
      sampled.map((rollout) => (rollout.weights_version_min === rollout.weights_version_max ? 0 : 1)),
    ),
  };
}

function rewardsOf(rollouts: readonly RolloutRecord[]): number[] {
  return rollouts.flatMap(({ reward }) => (reward === null ? [] : [reward]));
}

function mean(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0) / values.length;
}

import { OsmosisError } from "@osmosis/protocol";

/** The advantage of each member of a group over the others, from their rewards. */
export type AdvantageEstimator = (rewards_G: readonly number[]) => number[];

/** Reward minus the group's mean (Dr. GRPO, arXiv 2503.20783). */
export const centred: AdvantageEstimator = (rewards_G) => {
  const mean = meanOf(rewards_G);
  return rewards_G.map((reward) => reward - mean);
};

/** Centred, divided by the group's unbiased standard deviation plus epsilon (GRPO, arXiv 2402.03300). */
export function groupStd(epsilon: number): AdvantageEstimator {
  return (rewards_G) => {
    const centred_G = centred(rewards_G);
    if (rewards_G.length < 2) return centred_G.map(() => 0);
    const variance = centred_G.reduce((sum, value) => sum + value * value, 0) / (rewards_G.length - 1);
    return centred_G.map((value) => value / (Math.sqrt(variance) + epsilon));
  };
}

/** Reward minus the mean of the others (RLOO, arXiv 2402.14740). */
export const rloo: AdvantageEstimator = (rewards_G) => {
  const size = rewards_G.length;
  return size < 2 ? rewards_G.map(() => 0) : centred(rewards_G).map((value) => (value * size) / (size - 1));
};

/**
 * Centred, divided by the group's mean plus epsilon (MaxRL, arXiv 2602.02710).
 *
 * @throws OsmosisError `VALIDATION` for a negative reward: with a mean below 0 the better rollouts would be unlearned.
 */
export function maxRl(epsilon: number): AdvantageEstimator {
  return (rewards_G) => {
    const negative = rewards_G.find((reward) => reward < 0);
    if (negative !== undefined) {
      throw new OsmosisError("VALIDATION", `The advantage max_rl got a reward of ${negative}.`, {
        hint: "It needs rewards of 0 and above; choose another [advanced].advantage or shift the grader's rewards.",
      });
    }
    const mean = meanOf(rewards_G);
    return rewards_G.map((reward) => (reward - mean) / (mean + epsilon));
  };
}

/** The estimators by their names in `[advanced].advantage`. */
export const ADVANTAGES = {
  centred,
  group_std: groupStd(1e-6),
  rloo,
  max_rl: maxRl(1e-6),
  dr_grpo: centred,
} as const satisfies Record<string, AdvantageEstimator>;

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

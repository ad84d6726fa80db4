import { isScored } from "@osmosis/protocol";
import type { RolloutRecord, TrainingRunConfig } from "@osmosis/protocol";

/** What becomes of a group in which a rollout failed. */
export type GroupPolicy = {
  /** How often a failed rollout is run again, where that may help. */
  readonly retries: number;
  /** Whether the group may be trained with, as it has come out. */
  readonly isViable: (rollouts_G: readonly RolloutRecord[]) => boolean;
};

/** Trains with the others, if there are enough of them. */
export function minViable(minSize: number): GroupPolicy {
  return { retries: 0, isViable: (rollouts_G) => rewardsIn(rollouts_G) >= minSize };
}

/** Runs failed rollouts again first; what fails for ever is left out as by `minViable`. */
export function retry(retries: number, minSize: number): GroupPolicy {
  return { ...minViable(minSize), retries };
}

/** Leaves the whole group out. */
export function drop(minSize: number): GroupPolicy {
  const { isViable } = minViable(minSize);
  return {
    retries: 0,
    isViable: (rollouts_G) => rollouts_G.every(({ outcome }) => isScored(outcome)) && isViable(rollouts_G),
  };
}

export function groupPolicyOf({
  group_policy: policy,
  group_min_size: minSize,
  group_retries: retries,
}: Pick<TrainingRunConfig["advanced"], "group_policy" | "group_min_size" | "group_retries">): GroupPolicy {
  switch (policy) {
    case "min_viable":
      return minViable(minSize);
    case "retry":
      return retry(retries, minSize);
    case "drop":
      return drop(minSize);
  }
}

function rewardsIn(rollouts_G: readonly RolloutRecord[]): number {
  return rollouts_G.filter(({ reward }) => reward !== null).length;
}

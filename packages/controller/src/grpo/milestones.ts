import type { StepRewards, TrainingRunConfig } from "@osmosis/protocol";
import type { Metrics } from "./metrics.ts";

/**
 * What the rewards of a run so far say: which step is the best one, and whether to stop early. All of it is derived from
 * committed steps, so a run that is taken up again comes to the same end.
 */
export type Milestones = {
  /** Takes in a step; steps come in their order. */
  add(step: StepRewards): void;
  /** Whether the last step is the best one so far that there is a checkpoint of. */
  isBest(): boolean;
  /** Why the run has reached its end, for a person. */
  earlyStop(): string | undefined;
};

type MilestoneConfig = Pick<TrainingRunConfig, "checkpoints" | "advanced">;

export function openMilestones(
  { checkpoints, advanced }: MilestoneConfig,
  past: readonly StepRewards[],
): Milestones {
  const { early_stop_patience: patience, early_stop_reward: enough } = advanced;
  const steps = [...past];

  /** Rewards that compete for the best: of validations, or without any of the steps that are kept anyway. */
  function competing(): { readonly step: number; readonly reward: number }[] {
    const validated = isValidated({ checkpoints, advanced });
    return steps.flatMap(({ step, reward, validation_reward }) => {
      const value = validated ? validation_reward : reward;
      const counts =
        validated || step % checkpoints.checkpoint_save_freq === 0 || step === steps.at(-1)?.step;
      return value === null || !counts ? [] : [{ step, reward: value }];
    });
  }

  return {
    add: (step) => void steps.push(step),

    isBest() {
      const rewards = competing();
      const last = rewards.at(-1);
      if (last === undefined || last.step !== steps.at(-1)?.step) return false;
      return rewards.slice(0, -1).every(({ reward }) => reward < last.reward);
    },

    earlyStop() {
      const validations = steps.filter(({ validation_n: n }) => n > 0);
      const last = validations.at(-1);
      if (last === undefined) return undefined;
      const reached = last.validation_reward;
      if (enough !== undefined && reached !== null && reached >= enough) {
        return `The validation of step ${last.step} has the reward ${reached}; early_stop_reward is ${enough}.`;
      }
      if (patience === 0) return undefined;
      const best = bestOf(validations);
      const since = validations.length - 1 - best;
      if (since < patience) return undefined;
      return (
        `The last ${since} validations were no better than that of step ${validations[best]?.step}, ` +
        `whose reward is ${validations[best]?.validation_reward}; early_stop_patience is ${patience}.`
      );
    },
  };
}

/** Whether steps are validated at all. */
export function isValidated({ checkpoints, advanced }: MilestoneConfig): boolean {
  return advanced.holdout_rows > 0 && checkpoints.eval_interval > 0;
}

/** What the metrics of a step say about its rewards. */
export function rewardsOfStep(step: number, metrics: Metrics): StepRewards {
  return {
    step,
    reward: metrics["rollout/raw_reward"] ?? null,
    validation_reward: metrics["eval/validation/reward"] ?? null,
    validation_n: metrics["eval/validation/n"] ?? 0,
  };
}

/** Position of the first validation with the highest reward. */
function bestOf(validations: readonly StepRewards[]): number {
  let best = 0;
  for (const [index, { validation_reward: reward }] of validations.entries()) {
    if ((reward ?? -Infinity) > (validations[best]?.validation_reward ?? -Infinity)) best = index;
  }
  return best;
}

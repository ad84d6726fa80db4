import type { PastStep, TrainingRunConfig } from "@osmosis/protocol";
import type { Metrics } from "./metrics.ts";

/**
 * What the steps of a run so far say: which is the best one, whether to stop early, and how long nothing is learned any
 * more. All of it is derived from committed steps, so a run that is taken up again comes to the same end.
 */
export type Milestones = {
  /** Takes in a step; steps come in their order. */
  add(step: PastStep): void;
  /** Whether the last step is the best one so far that there is a checkpoint of. */
  isBest(): boolean;
  /** Why the run has reached its end, for a person. */
  earlyStop(): string | undefined;
  /** How many updates in a row were skipped last, whatever steps without one lie between. */
  skippedUpdates(): number;
};

type MilestoneConfig = Pick<TrainingRunConfig, "checkpoints" | "advanced">;

export function openMilestones(
  { checkpoints, advanced }: MilestoneConfig,
  past: readonly PastStep[],
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

    skippedUpdates() {
      const tried = steps.filter(({ update }) => update !== "none");
      return tried.length - 1 - tried.findLastIndex(({ update }) => update === "made");
    },

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

/** What later steps need to know of the metrics of a step. */
export function pastStepOf(step: number, metrics: Metrics): PastStep {
  return {
    step,
    reward: metrics["rollout/raw_reward"] ?? null,
    validation_reward: metrics["eval/validation/reward"] ?? null,
    validation_n: metrics["eval/validation/n"] ?? 0,
    update: updateOf(metrics),
  };
}

function updateOf(metrics: Metrics): PastStep["update"] {
  if (metrics["train/updated"] === 1) return "made";
  return metrics["train/sequences"] === undefined ? "none" : "skipped";
}

/** Position of the first validation with the highest reward. */
function bestOf(validations: readonly PastStep[]): number {
  let best = 0;
  for (const [index, { validation_reward: reward }] of validations.entries()) {
    if ((reward ?? -Infinity) > (validations[best]?.validation_reward ?? -Infinity)) best = index;
  }
  return best;
}

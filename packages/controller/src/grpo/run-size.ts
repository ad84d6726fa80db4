import type { TrainingRunConfig } from "@osmosis/protocol";
import { isValidated } from "./milestones.ts";
import { stepsOf } from "./schedule.ts";
import { isDynamic } from "./step-plan.ts";

export type RunSize = {
  readonly steps: number;
  /** Of the steps' own prompts. */
  readonly rollouts: number;
  /** The same with every group that dynamic sampling may roll out in place of others. */
  readonly rolloutsAtMost: number;
  readonly validationRollouts: number;
};

/** How much a run rolls out on a data set of `rowCount` rows when it goes on to its last step and nothing is repeated. */
export function runSize(
  config: Pick<TrainingRunConfig, "training" | "checkpoints" | "advanced">,
  rowCount: number,
): RunSize {
  const { training, checkpoints, advanced } = config;
  const steps = stepsOf(config, rowCount);
  const ofGroups = (groups: number): number => steps * groups * training.n_samples_per_prompt;
  const groups = training.rollout_batch_size;
  const rows = Math.max(0, rowCount - advanced.holdout_rows);
  const cap = Math.max(groups, Math.min(Math.floor(groups * advanced.dynamic_sampling_cap), rows));
  // The last step is validated, too.
  const validations = isValidated(config) ? Math.ceil(steps / checkpoints.eval_interval) : 0;
  return {
    steps,
    rollouts: ofGroups(groups),
    rolloutsAtMost: ofGroups(isDynamic(config) ? cap : groups),
    validationRollouts: validations * Math.min(rowCount, advanced.holdout_rows),
  };
}

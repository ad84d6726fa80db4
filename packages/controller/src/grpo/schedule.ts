import type { TrainingRunConfig } from "@osmosis/protocol";

/** How many steps a training run has on a data set of `rowCount` rows. 0 when no row is left to train on. */
export function stepsOf(config: Pick<TrainingRunConfig, "training" | "advanced">, rowCount: number): number {
  const rows = Math.max(0, rowCount - config.advanced.holdout_rows);
  if (rows === 0) return 0;
  const whole = Math.floor((rows * config.training.total_epochs) / config.training.rollout_batch_size);
  return Math.min(Math.max(1, whole), config.advanced.max_steps ?? Infinity);
}

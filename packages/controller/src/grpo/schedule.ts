import type { DatasetRow, TrainingRunConfig } from "@osmosis/protocol";
import { seedOf, shuffled } from "../seed.ts";

type ScheduleConfig = Pick<TrainingRunConfig, "training" | "advanced">;

/**
 * How many steps a training run has on a data set of `rowCount` rows: as many whole batches as its epochs hold, at
 * least one, at most `max_steps`. 0 when no row is left to train on.
 */
export function stepsOf({ training, advanced }: ScheduleConfig, rowCount: number): number {
  const rows = Math.max(0, rowCount - advanced.holdout_rows);
  if (rows === 0) return 0;
  const batches = Math.floor((rows * training.total_epochs) / training.rollout_batch_size);
  return Math.min(Math.max(1, batches), advanced.max_steps ?? Infinity);
}

/** One rollout that a step asks for. */
export type StepTask = {
  readonly row: DatasetRow;
  readonly sampleIndex: number;
  /** Position of its group in the step. */
  readonly group: number;
};

/**
 * The rollouts of a step, ordered by group, then sample. Training rows are all but the first `holdout_rows`; each epoch
 * goes through them once, in an order of its own that the seed decides. A step may span two epochs; a row that it then
 * meets twice makes two groups.
 */
export function tasksOfStep(
  { training, advanced }: ScheduleConfig,
  rows: readonly DatasetRow[],
  step: number,
): StepTask[] {
  const trained = rows.slice(advanced.holdout_rows);
  const size = training.rollout_batch_size;
  const orders = new Map<number, DatasetRow[]>();
  const met = new Map<number, number>();
  const tasks: StepTask[] = [];
  for (let group = 0; group < size; group++) {
    const position = (step - 1) * size + group;
    const epoch = Math.floor(position / trained.length);
    if (epoch >= training.total_epochs) break;
    const order = orders.get(epoch) ?? shuffled(trained, seedOf(advanced.seed, "epoch", epoch));
    orders.set(epoch, order);
    const row = order[position % trained.length];
    if (row === undefined) break;
    const earlier = met.get(row.row_index) ?? 0;
    met.set(row.row_index, earlier + 1);
    for (let sample = 0; sample < training.n_samples_per_prompt; sample++) {
      tasks.push({ row, sampleIndex: earlier * training.n_samples_per_prompt + sample, group });
    }
  }
  return tasks;
}

/**
 * The learning rate of a step from 1 to `totalSteps`: constant, or down to a tenth at the last step, on a line or on half
 * a cosine wave; times a linear warm-up.
 */
export function learningRate(
  { training, advanced }: ScheduleConfig,
  { step, totalSteps }: { readonly step: number; readonly totalSteps: number },
): number {
  const warmup = advanced.warmup_steps === 0 ? 1 : Math.min(1, step / advanced.warmup_steps);
  const gone = totalSteps <= 1 ? 0 : (step - 1) / (totalSteps - 1);
  const lost = { constant: 0, linear: gone, cosine: (1 - Math.cos(Math.PI * gone)) / 2 };
  return training.lr * warmup * (1 - 0.9 * lost[advanced.lr_schedule]);
}

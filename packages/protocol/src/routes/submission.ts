import { z } from "zod";

/** Bodies are read a second time by `EvalRunConfig` and `TrainingRunConfig`, which name what is wrong. */
const rawTable = z.record(z.string(), z.unknown());
const submitFields = {
  experiment_config: rawTable,
  advanced_config: rawTable.optional(),
  env_config: z.record(z.string(), z.string()).optional(),
  secrets: z
    .object({
      required: z.array(z.string()).default([]),
      provided: z.record(z.string(), z.string()).optional(),
    })
    .optional(),
};

export const Submitted = z.object({
  id: z.string(),
  name: z.string(),
  status: z.string(),
  created_at: z.string(),
  platform_url: z.string(),
});

/** What a submission would run. Everything that it names was found; nothing was started and nothing is kept of it. */
export const Checked = z.object({
  commit_sha: z.string(),
  dataset_rows: z.int(),
  /** Rows that an evaluation measures on, or that a training learns from. */
  rows: z.int(),
  /** Optimizer steps of a training; null for an evaluation. */
  steps: z.int().nullable(),
  /** Rollouts in all; of a training those of the steps' own prompts. */
  rollouts: z.int(),
  /** The same with every group that dynamic sampling may roll out in place of others. */
  rollouts_at_most: z.int(),
  /** Rollouts of a training's validations. */
  validation_rollouts: z.int(),
});
export type Checked = z.infer<typeof Checked>;

export const EvalBody = z.object({ ...submitFields, evaluation_config: rawTable.optional() });
export const TrainingBody = z.object({
  ...submitFields,
  training_config: rawTable.optional(),
  sampling_config: rawTable.optional(),
  checkpoints_config: rawTable.optional(),
});

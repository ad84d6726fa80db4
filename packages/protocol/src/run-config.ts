import { z } from "zod";

/**
 * The run configurations of `configs/eval/*.toml` and `configs/training/*.toml`: names, defaults and rules. The CLI
 * reads them, the server reads them again. Unknown keys are refused, so that a typing error never becomes a default.
 */

const ENV_NAME = /^[A-Z_][A-Z0-9_]*$/;
const SECRET_NAME = /^[A-Z][A-Z0-9_]*$/;

/** Names that the platform sets itself start so; a configuration may not. */
export const RESERVED_ENV_PREFIX = "_OSMOSIS_";

export const SecretName = z
  .string()
  .max(255)
  .regex(SECRET_NAME, "must be upper-case letters, digits and underscores, starting with a letter");

const envName = z
  .string()
  .regex(ENV_NAME, "must be upper-case letters, digits and underscores")
  .refine((name) => !name.startsWith(RESERVED_ENV_PREFIX), `may not start with ${RESERVED_ENV_PREFIX}`);

/** Name of a directory under `rollouts/`. */
export const RolloutName = z
  .string()
  .min(1)
  .refine(
    (name) => name !== "." && name !== ".." && !/[\\/\0]/.test(name),
    "must be one folder name under rollouts/",
  );

const entrypoint = z
  .string()
  .min(1)
  .refine((path) => {
    const segments = path.split("/");
    return (
      !path.startsWith("/") && !path.includes("\\") && !segments.includes("..") && !segments.includes("")
    );
  }, "must be a relative path inside the rollout's folder");

export const ExperimentConfig = z
  .strictObject({
    rollout: RolloutName,
    entrypoint,
    model_path: z.string().min(1),
    dataset: z.string().min(1),
    branch: z.string().regex(/^\S+$/, "may not be empty or contain white space").optional(),
    commit_sha: z
      .string()
      .regex(/^[0-9a-fA-F]{7,40}$/, "must be 7 to 40 hexadecimal digits")
      .optional(),
  })
  .refine((config) => config.branch === undefined || config.commit_sha === undefined, {
    path: ["commit_sha"],
    message: "give either branch or commit_sha, not both",
  });
export type ExperimentConfig = z.infer<typeof ExperimentConfig>;

const timeoutSeconds = z.number().positive().max(86_400);

export const EvaluationSettings = z.strictObject({
  /** The first `limit` rows; without it a random tenth of the rows, at least one. */
  limit: z.int().min(1).optional(),
  /** Attempts per row. */
  n: z.int().min(1).max(1024).default(1),
  /** Rows in flight. */
  batch_size: z.int().min(1).max(1024).default(8),
  /** Smallest reward that counts as a pass. */
  pass_threshold: z.number().default(1),
  agent_workflow_timeout_s: timeoutSeconds.default(450),
  grader_timeout_s: timeoutSeconds.default(150),
});
export type EvaluationSettings = z.infer<typeof EvaluationSettings>;

export const TrainingSettings = z.strictObject({
  lr: z.number().positive().max(1).default(1e-6),
  total_epochs: z.int().min(1).max(10_000).default(1),
  /** Rollouts per prompt: the size of a group. */
  n_samples_per_prompt: z.int().min(2).max(1024).default(8),
  /** Prompts per step. */
  rollout_batch_size: z.int().min(1).max(4096).default(32),
  /** Tokens that the first prompt of a rollout may have. */
  max_prompt_length: z.int().min(1).default(8192),
  /** Tokens that all answers of a rollout may have together; then its answers are empty, and it counts as truncated. */
  max_response_length: z.int().min(1).default(8192),
  agent_workflow_timeout_s: timeoutSeconds.default(450),
  grader_timeout_s: timeoutSeconds.default(150),
});
export type TrainingSettings = z.infer<typeof TrainingSettings>;

/** Below it nothing of a 32-bit logit's precision is left once it is divided by the temperature. */
const LEAST_TEMPERATURE = 0.001;

export const SamplingSettings = z.strictObject({
  rollout_temperature: z.number().min(LEAST_TEMPERATURE).max(2).default(1),
  rollout_top_p: z.number().positive().max(1).default(1),
});
export type SamplingSettings = z.infer<typeof SamplingSettings>;

export const CheckpointSettings = z.strictObject({
  /** Validation on the held-out rows every so many steps and after the last one; 0 switches it off, as do no such rows. */
  eval_interval: z.int().min(0).default(10),
  /** A checkpoint every so many steps; the last step always makes one. */
  checkpoint_save_freq: z.int().min(1).default(20),
});
export type CheckpointSettings = z.infer<typeof CheckpointSettings>;

/** What `[advanced]` of an evaluation takes. */
export const EvaluationAdvanced = z.strictObject({
  seed: z.int().min(0).max(0xffff_ffff).default(0),
  /** Sampling temperature of models that the platform serves, where the agent names none; 0 is greedy. */
  temperature: z
    .number()
    .min(0)
    .max(2)
    .refine(
      (value) => value === 0 || value >= LEAST_TEMPERATURE,
      `must be 0 or at least ${LEAST_TEMPERATURE}`,
    )
    .default(0),
  top_p: z.number().positive().max(1).default(1),
  /** Tokens per model call at most. */
  max_tokens: z.int().min(1).default(1024),
});
export type EvaluationAdvanced = z.infer<typeof EvaluationAdvanced>;

/** What `[advanced]` of a training run takes. */
export const TrainingAdvanced = z.strictObject({
  seed: z.int().min(0).max(0xffff_ffff).default(0),
  method: z.enum(["lora", "full"]).default("lora"),
  lora_rank: z.int().min(1).max(512).default(32),
  lora_alpha: z.number().positive().default(32),
  /** The first so many rows of the data set are never trained on; they are the validation rows. */
  holdout_rows: z.int().min(0).default(0),
  advantage: z.enum(["centred", "group_std", "rloo"]).default("centred"),
  loss: z.enum(["ppo", "importance_sampling", "cispo"]).default("ppo"),
  clip_low: z.number().min(0).max(1).default(0.2),
  clip_high: z.number().min(0).default(0.28),
  aggregation: z.enum(["token_mean", "sequence_mean"]).default("token_mean"),
  lr_schedule: z.enum(["constant", "linear"]).default("constant"),
  warmup_steps: z.int().min(0).default(0),
  grad_clip_norm: z.number().min(0).default(1),
  weight_decay: z.number().min(0).default(0),
  /** A run stops itself after so many rollouts in a row failed without a reward. */
  max_consecutive_failures: z.int().min(1).default(64),
  /** Ends the run after so many steps, whatever `total_epochs` says. */
  max_steps: z.int().min(1).optional(),
});
export type TrainingAdvanced = z.infer<typeof TrainingAdvanced>;

export const EnvConfig = z.record(envName, z.string());
export type EnvConfig = z.infer<typeof EnvConfig>;

export const SecretsConfig = z.strictObject({
  required: z
    .array(SecretName)
    .refine((names) => new Set(names).size === names.length, "may not name a secret twice"),
});
export type SecretsConfig = z.infer<typeof SecretsConfig>;

function refuseOverlap(config: {
  env?: EnvConfig | undefined;
  secrets?: SecretsConfig | undefined;
}): string[] {
  return (config.secrets?.required ?? []).filter((name) => config.env !== undefined && name in config.env);
}

export const EvalRunConfig = z
  .strictObject({
    experiment: ExperimentConfig,
    evaluation: EvaluationSettings.prefault({}),
    env: EnvConfig.default({}),
    secrets: SecretsConfig,
    advanced: EvaluationAdvanced.prefault({}),
  })
  .superRefine((config, context) => {
    for (const name of refuseOverlap(config)) {
      context.addIssue({
        code: "custom",
        path: ["env", name],
        message: "is a required secret, too; keep one of the two",
      });
    }
  });
export type EvalRunConfig = z.infer<typeof EvalRunConfig>;

export const TrainingRunConfig = z
  .strictObject({
    experiment: ExperimentConfig,
    training: TrainingSettings.prefault({}),
    sampling: SamplingSettings.prefault({}),
    checkpoints: CheckpointSettings.prefault({}),
    env: EnvConfig.default({}),
    secrets: SecretsConfig.default({ required: [] }),
    advanced: TrainingAdvanced.prefault({}),
  })
  .superRefine((config, context) => {
    for (const name of refuseOverlap(config)) {
      context.addIssue({
        code: "custom",
        path: ["env", name],
        message: "is a required secret, too; keep one of the two",
      });
    }
  });
export type TrainingRunConfig = z.infer<typeof TrainingRunConfig>;

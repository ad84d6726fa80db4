import { z } from "zod";
import { contradictions, trainerContradictions, type Contradiction } from "./contradictions.ts";
import { refuseTooLarge } from "./largest-values.ts";

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

const webAddress = z.url({ protocol: /^https?$/, error: "must be an http(s) address" });

/** A name that another server gave to something. */
const foreignName = z.string().min(1).max(255);

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

/** A weight in the objective. */
const coefficient = z.number().min(0);

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
  /** Without it 1e-5 for an adapter and 1e-6 for all weights. */
  lr: z.number().positive().max(1).optional(),
  total_epochs: z.int().min(1).max(10_000).default(1),
  /** Rollouts per prompt: the size of a group. */
  n_samples_per_prompt: z.int().min(2).max(1024).default(8),
  /** Prompts per step. */
  rollout_batch_size: z.int().min(1).max(4096).default(16),
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
  eval_interval: z.int().min(0).default(20),
  /** A checkpoint every so many steps; the last step always makes one. */
  checkpoint_save_freq: z.int().min(1).default(20),
});
export type CheckpointSettings = z.infer<typeof CheckpointSettings>;

/** Smallest and largest reward that the grader may give; anything else is a failure of the grader. */
const rewardRange = z
  .tuple([z.number(), z.number()])
  .refine(([low, high]) => low < high, "must be [lowest, highest]");

/** Where a model is trained, and where an evaluation samples a base model. */
export const TrainerChoice = z.object({
  /** Address of a trainer that speaks the Tinker wire, or `embedded`; without it the platform's own choice. */
  trainer: z.union([z.literal("embedded"), webAddress], "must be embedded or an http(s) address").optional(),
  /** Secret of `[secrets].required` that holds the trainer's API key. */
  trainer_api_key: SecretName.optional(),
  /** What the trainer calls the base model, where its name differs from the platform's. */
  trainer_model: foreignName.optional(),
});
export type TrainerChoice = z.infer<typeof TrainerChoice>;

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
  reward_range: rewardRange.optional(),
  /** Workers that may roll out for the run at once, the one that holds it included. */
  rollout_workers: z.int().min(1).max(256).default(1),
  /** Of a base model. Without a choice one that has weights here is sampled here, another one at the platform's trainer. */
  ...TrainerChoice.shape,
});
export type EvaluationAdvanced = z.infer<typeof EvaluationAdvanced>;

/** What `[advanced]` of a training run takes. `docs/algorithms.md` defines each algorithm. */
export const TrainingAdvanced = z.strictObject({
  seed: z.int().min(0).max(0xffff_ffff).default(0),

  // What is trained, and where.
  method: z.enum(["lora", "full"]).default("lora"),
  lora_rank: z.int().min(1).max(512).default(32),
  lora_alpha: z.number().positive().default(32),
  ...TrainerChoice.shape,
  /** How the trainer adds up losses, where that cannot be measured: a sum, or an average of one kind. */
  trainer_reduction: z.enum(["sum", "batch_mean", "sequence_mean", "token_mean"]).optional(),

  // The rows.
  /** The first so many rows of the data set are never trained on; they are the validation rows. */
  holdout_rows: z.int().min(0).default(0),
  /** Replaces groups whose rewards are all the same by groups of other prompts. */
  dynamic_sampling: z.boolean().default(true),
  /** Groups that a step may roll out, replacements included, as a multiple of `rollout_batch_size`. */
  dynamic_sampling_cap: z.number().min(1).max(16).default(3),

  // The algorithm.
  advantage: z.enum(["centred", "group_std", "rloo", "max_rl", "dr_grpo"]).default("centred"),
  loss: z.enum(["ppo", "importance_sampling", "cispo", "gspo"]).default("ppo"),
  /** Distance of the ratio's bounds from 1; without them 0.2 and 0.28, and 0.0003 and 0.0004 for gspo. */
  clip_low: z.number().min(0).max(1).optional(),
  clip_high: z.number().min(0).optional(),
  aggregation: z.enum(["token_mean", "sequence_mean", "dr_grpo"]).default("token_mean"),
  /** What is done where trainer and sampler disagree about a token's probability; it is reported in any case. */
  correction: z.enum(["none", "token_truncate", "token_mask", "sequence_mask"]).default("token_truncate"),
  correction_cap: z.number().min(1).default(2),
  /** Weight of the KL divergence to the model that training began with; 0 switches it off. */
  kl_coef: coefficient.default(0),
  kl_estimator: z.enum(["k1", "k3"]).default("k3"),
  /** Model whose log probabilities the policy is rewarded for, token by token (on-policy distillation). */
  teacher_model: z.string().min(1).optional(),
  teacher_coef: coefficient.default(1),
  /** What the grader's rewards count beside the teacher; 0 distils only. */
  reward_coef: coefficient.default(1),
  entropy_coef: coefficient.default(0),
  /** Tokens before `max_response_length` in which a soft penalty grows from 0 to 1; 0 switches it off. */
  overlong_cache: z.int().min(0).default(0),

  // The optimiser.
  lr_schedule: z.enum(["constant", "linear", "cosine"]).default("constant"),
  warmup_steps: z.int().min(0).default(0),
  grad_clip_norm: z.number().min(0).default(1),
  weight_decay: z.number().min(0).default(0),

  // The loop.
  /** Ends the run after so many steps, whatever `total_epochs` says. */
  max_steps: z.int().min(1).optional(),
  /** Rolls out later steps while earlier ones train; the curve then depends on timing. */
  asynchronous: z.boolean().default(false),
  /** Updates that the weights which sample a rollout may lag behind those that it trains; 0 is the synchronous loop. */
  max_staleness: z.int().min(0).max(8).default(1),
  /** Workers that may roll out for the run at once, the one that trains included. */
  rollout_workers: z.int().min(1).max(256).default(1),

  // What goes wrong.
  reward_range: rewardRange.optional(),
  /**
   * What becomes of a group in which a rollout failed: `min_viable` trains with the others, `retry` runs the failed ones
   * again first, `drop` leaves the group out.
   */
  group_policy: z.enum(["min_viable", "retry", "drop"]).default("min_viable"),
  /** Rewards that a group needs at least to be trained with. */
  group_min_size: z.int().min(2).default(2),
  /** How often `retry` runs a rollout again. */
  group_retries: z.int().min(1).max(10).default(2),
  /** A run stops itself after so many rollouts in a row failed in one and the same way. */
  max_consecutive_failures: z.int().min(1).default(64),

  // What is kept, and when it is enough.
  /** Newest checkpoints to keep beside the best one; 0 keeps all. */
  keep_checkpoints: z.int().min(0).default(0),
  /** Ends the run after so many validations in a row without a better reward; 0 switches it off. */
  early_stop_patience: z.int().min(0).default(0),
  /** Ends the run when a validation reaches this mean reward. */
  early_stop_reward: z.number().optional(),

  // Where else the curves go. Never able to stop a run.
  /** Weights & Biases project; its key is the secret WANDB_API_KEY. */
  wandb_project: foreignName.optional(),
  wandb_entity: foreignName.optional(),
  wandb_url: webAddress.default("https://api.wandb.ai"),
  /** Address of an MLflow tracking server; a token may be in the secret MLFLOW_TRACKING_TOKEN. */
  mlflow_url: webAddress.optional(),
  mlflow_experiment: foreignName.default("osmosis"),
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

/** What is refused in any configuration when it is submitted. */
function refuseFaults(
  config: { readonly env: EnvConfig; readonly secrets: SecretsConfig },
  contradicting: readonly Contradiction[],
  context: z.RefinementCtx,
): void {
  refuseTooLarge(config, context);
  for (const name of config.secrets.required.filter((one) => one in config.env)) {
    context.addIssue({
      code: "custom",
      path: ["env", name],
      message: "is a required secret, too; keep one of the two",
    });
  }
  for (const { key, message } of contradicting) {
    context.addIssue({ code: "custom", path: ["advanced", key], message });
  }
}

/** The configuration of a run as it was accepted. Bounds of values, and rules between settings, that came later do not reach it. */
export const AcceptedEvalConfig = z.strictObject({
  experiment: ExperimentConfig,
  evaluation: EvaluationSettings.prefault({}),
  env: EnvConfig.default({}),
  secrets: SecretsConfig,
  advanced: EvaluationAdvanced.prefault({}),
});

export const EvalRunConfig = AcceptedEvalConfig.superRefine((config, context) => {
  refuseFaults(config, trainerContradictions(config.advanced, config.secrets.required), context);
});
export type EvalRunConfig = z.infer<typeof EvalRunConfig>;

const TrainingTables = z.strictObject({
  experiment: ExperimentConfig,
  training: TrainingSettings.prefault({}),
  sampling: SamplingSettings.prefault({}),
  checkpoints: CheckpointSettings.prefault({}),
  env: EnvConfig.default({}),
  secrets: SecretsConfig.default({ required: [] }),
  advanced: TrainingAdvanced.prefault({}),
});

export const TrainingRunConfig = TrainingTables.superRefine((config, context) => {
  const { required } = config.secrets;
  refuseFaults(config, contradictions({ ...config, required }), context);
}).transform(withDefaults);
export type TrainingRunConfig = z.infer<typeof TrainingRunConfig>;

/** As {@link AcceptedEvalConfig}. */
export const AcceptedTrainingConfig = TrainingTables.transform(withDefaults);

function withDefaults(config: z.infer<typeof TrainingTables>) {
  const { training, advanced } = config;
  return {
    ...config,
    training: { ...training, lr: training.lr ?? defaultLearningRate(advanced) },
    advanced: {
      ...advanced,
      clip_low: advanced.clip_low ?? (advanced.loss === "gspo" ? 3e-4 : 0.2),
      clip_high: advanced.clip_high ?? (advanced.loss === "gspo" ? 4e-4 : 0.28),
    },
  };
}

/** An adapter takes about ten times the rate of all weights (https://thinkingmachines.ai/blog/lora). */
function defaultLearningRate({ method }: TrainingAdvanced): number {
  return method === "lora" ? 1e-5 : 1e-6;
}

import { z } from "zod";
import { route } from "../route.ts";
import { RolloutOutcome } from "../outcome.ts";
import { Estimate } from "./estimate.ts";
import { LogPage, LogQuery, NamedRef, PageQuery, pageFields } from "./page.ts";
import { Checked, EvalBody, Submitted, TrainingBody } from "./submission.ts";
import { LastStep, NewestValidation } from "./training-headline.ts";

/** A configuration as it was kept. */
const rawTable = z.record(z.string(), z.unknown());
const person = { creator_name: z.string().nullable(), creator_email: z.string().nullable() };
const times = {
  created_at: z.string(),
  started_at: z.string().nullable(),
  completed_at: z.string().nullable(),
};

export const EvalStatus = z.enum(["pending", "running", "finished", "failed", "stopped"]);
export type EvalStatus = z.infer<typeof EvalStatus>;

export const TrainingStatus = z.enum(["pending", "running", "finished", "failed", "stopped", "crashed"]);
export type TrainingStatus = z.infer<typeof TrainingStatus>;

export const RewardStats = z.object({
  mean: z.number(),
  std: z.number(),
  min: z.number(),
  median: z.number(),
  max: z.number(),
  pass_at_k: z.record(z.string(), z.number()).optional(),
});

/** Rollouts that ended so, by outcome; outcomes that did not occur are absent. */
export const OutcomeCounts = z.partialRecord(RolloutOutcome, z.int());
export type OutcomeCounts = z.infer<typeof OutcomeCounts>;

export const EvalResults = z.object({
  /** Mean reward over the graded rollouts. */
  score: z.number().nullable(),
  score_ci: Estimate.nullable(),
  pass_rate: z.number(),
  pass_rate_ci: Estimate.nullable(),
  /** What calls were sampled with that named no temperature of their own; null where a hosted provider's default held. */
  temperature: z.number().nullable(),
  pass_threshold: z.number(),
  graded: z.int(),
  passed: z.int(),
  failed: z.int(),
  skipped: z.int(),
  /** Rollouts that have ended, whatever the outcome. */
  total_runs: z.int(),
  sampled_rows: z.int(),
  total_dataset_rows: z.int(),
  total_tokens: z.int(),
  outcomes: OutcomeCounts,
  reward_stats: RewardStats.nullable(),
  /**
   * Means of what workflow or grader gave beside the reward, by name; each over the `n` graded rollouts that have it. Of
   * more than 256 names those that most have.
   */
  components: z.record(z.string(), z.object({ mean: z.number(), n: z.int() })).default({}),
  /** Why the numbers may not mean what they seem to, in sentences. */
  warnings: z.array(z.string()).default([]),
});
export type EvalResults = z.infer<typeof EvalResults>;

export const EvalRun = z.object({
  id: z.string(),
  name: z.string(),
  status: EvalStatus,
  /** Why the run failed, for a person. */
  error: z.string().nullable(),
  ...times,
  ...person,
  platform_url: z.string(),
  model: NamedRef,
  dataset: NamedRef,
  rollout: NamedRef,
  results: EvalResults.nullable(),
  config: rawTable,
});
export type EvalRun = z.infer<typeof EvalRun>;

/** Rollouts of each selected row. */
export function attemptsOf({ config }: Pick<EvalRun, "config">): number {
  const { n } = config;
  return typeof n === "number" ? n : 1;
}

const resolved = {
  entrypoint: z.string(),
  branch: z.string().nullable(),
  commit_sha: z.string(),
  env_config: z.record(z.string(), z.string()).nullable(),
  resolved_secret_scopes: z.record(z.string(), z.enum(["workspace", "user", "user_override", "run"])),
};

export const EvalDetail = z.object({
  eval_run: EvalRun,
  config: rawTable,
  results: EvalResults.nullable(),
  model: NamedRef,
  dataset: NamedRef,
  rollout: NamedRef,
  ...resolved,
});

export const EvalMetrics = z.object({
  eval_run_id: z.string(),
  status: EvalStatus,
  overview: z.object({
    duration_ms: z.number().nullable(),
    total_samples: z.int(),
    completed_samples: z.int(),
    graded: z.int(),
    passed: z.int(),
    failed: z.int(),
    skipped: z.int(),
    pass_rate: z.number(),
    pass_threshold: z.number(),
    tokens_used: z.int(),
  }),
  reward_stats: RewardStats.omit({ pass_at_k: true }).nullish(),
  pass_at_k: z.array(z.object({ k: z.int(), value: z.number() })),
});

const modelRef = NamedRef.extend({ model_name: z.string() });
const datasetRef = NamedRef.extend({ file_name: z.string() });

export const TrainingRun = z.object({
  id: z.string(),
  name: z.string(),
  status: TrainingStatus,
  error: z.string().nullable(),
  ...times,
  ...person,
  platform_url: z.string(),
  current_step: z.int(),
  total_steps: z.int().nullable(),
  /** Mean training reward of the last step, by the name that older clients ask for. */
  reward: z.number().nullable(),
  /** Training pass rate of the last step, likewise. */
  pass_rate: z.number().nullable(),
  /** Where a run stands; null before the first one. */
  validation: NewestValidation.nullable().default(null),
  last_step: LastStep.nullable().default(null),
  examples_processed_count: z.int(),
  notes: z.string().nullable(),
  model: modelRef,
  dataset: datasetRef,
  rollout: NamedRef,
});
export type TrainingRun = z.infer<typeof TrainingRun>;

export const TrainingDetail = z.object({
  training_run: TrainingRun,
  model: modelRef,
  dataset: datasetRef,
  rollout: NamedRef,
  config: rawTable,
  ...resolved,
});

export const TrainingMetrics = z.object({
  training_run_id: z.string(),
  status: TrainingStatus,
  overview: z.object({
    duration_ms: z.number().nullable(),
    metric_summaries: z.array(
      z.object({
        key: z.string(),
        title: z.string(),
        initial: z.number(),
        latest: z.number(),
        delta: z.number(),
        min: z.number(),
        max: z.number(),
      }),
    ),
    examples_processed_count: z.int(),
    latest_step: z.int(),
    total_steps: z.int().nullable(),
  }),
  metrics: z.array(
    z.object({
      metric_key: z.string(),
      title: z.string(),
      data_points: z.array(z.object({ step: z.int(), value: z.number(), timestamp: z.number() })),
    }),
  ),
});
export type TrainingMetrics = z.infer<typeof TrainingMetrics>;

/**
 * `best`: of its run the highest validation reward, or training reward where nothing was validated; of equals the
 * earlier. `last`: of its run the latest step.
 */
export const CheckpointMark = z.enum(["best", "last"]);
export type CheckpointMark = z.infer<typeof CheckpointMark>;

export const Checkpoint = z.object({
  id: z.string(),
  checkpoint_name: z.string(),
  checkpoint_step: z.int(),
  /** `removed`: its files were removed, as `keep_checkpoints` asks for. */
  status: z.enum(["uploaded", "removed"]),
  marks: z.array(CheckpointMark),
  /** Validation reward if the step was validated, else the mean training reward. */
  reward: z.number().nullable(),
  validation_reward: z.number().nullable(),
  created_at: z.string(),
});
export type Checkpoint = z.infer<typeof Checkpoint>;

/** One rollout of a run as a list shows it; its conversation is a question of its own. */
export const RolloutSummary = z.object({
  id: z.string(),
  /** `train` or `validation` in a training run, `eval` in an evaluation. */
  phase: z.enum(["eval", "train", "validation"]),
  step: z.int(),
  row_index: z.int(),
  /** Attempt at the row, from 0. */
  sample_index: z.int(),
  outcome: RolloutOutcome,
  reward: z.number().nullable(),
  error: z.string().nullable(),
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  model_calls: z.int(),
  duration_ms: z.number(),
  created_at: z.string(),
});
export type RolloutSummary = z.infer<typeof RolloutSummary>;

export const RolloutDetail = z.object({
  rollout: RolloutSummary,
  label: z.string().nullable(),
  /** OpenAI chat messages, with tool calls and tool results. */
  messages: z.array(z.record(z.string(), z.unknown())),
  metrics: z.record(z.string(), z.number()),
  /** ATIF document, when the rollout server wrote one. */
  trajectory: z.unknown().nullable(),
});

const rolloutQuery = PageQuery.extend({
  phase: z.enum(["eval", "train", "validation"]).optional(),
  step: z.coerce.number().int().min(0).max(0x7fff_ffff).optional(),
  outcome: RolloutOutcome.optional(),
});

const rolloutPage = z.object({ rollouts: z.array(RolloutSummary), ...pageFields });
const stopped = z.object({ id: z.string(), status: z.string() });

export const evalRoutes = {
  submit: route({
    method: "POST",
    path: "/api/cli/eval-runs",
    access: "workspace",
    body: EvalBody,
    response: Submitted,
  }),
  check: route({
    method: "POST",
    path: "/api/cli/eval-runs/check",
    access: "workspace",
    body: EvalBody,
    response: Checked,
  }),
  list: route({
    method: "GET",
    path: "/api/cli/eval-runs",
    access: "workspace",
    query: PageQuery,
    response: z.object({ eval_runs: z.array(EvalRun), ...pageFields }),
  }),
  get: route({ method: "GET", path: "/api/cli/eval-runs/{name}", access: "workspace", response: EvalDetail }),
  metrics: route({
    method: "GET",
    path: "/api/cli/eval-runs/{name}/metrics",
    access: "workspace",
    response: EvalMetrics,
  }),
  logs: route({
    method: "GET",
    path: "/api/cli/eval-runs/{name}/logs",
    access: "workspace",
    query: LogQuery,
    response: LogPage,
  }),
  stop: route({
    method: "POST",
    path: "/api/cli/eval-runs/{name}/stop",
    access: "workspace",
    body: z.object({}),
    response: stopped,
  }),
  rollouts: route({
    method: "GET",
    path: "/api/cli/eval-runs/{name}/rollouts",
    access: "workspace",
    query: rolloutQuery,
    response: rolloutPage,
  }),
  rollout: route({
    method: "GET",
    path: "/api/cli/eval-runs/{name}/rollouts/{rollout_id}",
    access: "workspace",
    response: RolloutDetail,
  }),
};

export const trainingRoutes = {
  submit: route({
    method: "POST",
    path: "/api/cli/training-runs",
    access: "workspace",
    body: TrainingBody,
    response: Submitted,
  }),
  check: route({
    method: "POST",
    path: "/api/cli/training-runs/check",
    access: "workspace",
    body: TrainingBody,
    response: Checked,
  }),
  list: route({
    method: "GET",
    path: "/api/cli/training-runs",
    access: "workspace",
    query: PageQuery,
    response: z.object({ training_runs: z.array(TrainingRun), ...pageFields }),
  }),
  get: route({
    method: "GET",
    path: "/api/cli/training-runs/{name}",
    access: "workspace",
    response: TrainingDetail,
  }),
  metrics: route({
    method: "GET",
    path: "/api/cli/training-runs/{name}/metrics",
    access: "workspace",
    response: TrainingMetrics,
  }),
  checkpoints: route({
    method: "GET",
    path: "/api/cli/training-runs/{name}/checkpoints",
    access: "workspace",
    response: z.object({
      training_run_id: z.string(),
      training_run_name: z.string(),
      checkpoints: z.array(Checkpoint),
    }),
  }),
  logs: route({
    method: "GET",
    path: "/api/cli/training-runs/{name}/logs",
    access: "workspace",
    query: LogQuery,
    response: LogPage,
  }),
  stop: route({
    method: "POST",
    path: "/api/cli/training-runs/{name}/stop",
    access: "workspace",
    body: z.object({}),
    response: stopped,
  }),
  rollouts: route({
    method: "GET",
    path: "/api/cli/training-runs/{name}/rollouts",
    access: "workspace",
    query: rolloutQuery,
    response: rolloutPage,
  }),
  rollout: route({
    method: "GET",
    path: "/api/cli/training-runs/{name}/rollouts/{rollout_id}",
    access: "workspace",
    response: RolloutDetail,
  }),
};

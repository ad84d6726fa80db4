import { z } from "zod";
import { RolloutOutcome } from "../outcome.ts";
import { route } from "../route.ts";
import { AcceptedEvalConfig, AcceptedTrainingConfig } from "../run-config.ts";
import { LogEntry } from "./page.ts";

/**
 * What a worker and the platform say to each other. A worker claims a run, and holds it by a lease that heartbeats
 * renew. Every write carries the lease (header `X-Osmosis-Lease`); after the lease is lost each of them answers 409
 * `CONFLICT`, so that a worker which was paused too long never writes beside its successor.
 *
 * What is recorded is durable before it is answered, and recording it twice is the same as once: a rollout by its id,
 * a step by its number, a checkpoint by its step.
 */

/** What a worker's name ends with in the lane of replays, where it holds another one than among the runs. */
export const REPLAY_WORKER_SUFFIX = "-replays";

export const RUN_LEASE_HEADER = "x-osmosis-lease";

/** A file that the worker may fetch: relative URL, size, and SHA-256 in hexadecimal. */
export const FileRef = z.object({
  name: z.string(),
  url: z.string(),
  size_bytes: z.int(),
  sha256: z.string(),
});
export type FileRef = z.infer<typeof FileRef>;

/** The model of a run: files that the worker's own engine opens, or a hosted provider behind an API key. */
export const ModelAssignment = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("local"),
    name: z.string(),
    base_model: z.string(),
    base_files: z.array(FileRef),
    /** PEFT adapter on top of the base; empty for none. */
    adapter_files: z.array(FileRef),
  }),
  z.object({
    type: z.literal("provider"),
    /** The name in the configuration, `openai/gpt-5-mini`. */
    name: z.string(),
    model: z.string(),
    base_url: z.string(),
    /** The secret or variable of the run that holds the key. */
    api_key_name: z.string(),
  }),
]);
export type ModelAssignment = z.infer<typeof ModelAssignment>;

/** A row of a data set as a rollout gets it. */
export const DatasetRow = z.object({
  /** Position in the data set's file, from 0. */
  row_index: z.int(),
  messages: z.array(z.object({ role: z.enum(["system", "user"]), content: z.string() })),
  label: z.string().nullable(),
  metadata: z.record(z.string(), z.unknown()).nullable(),
});
export type DatasetRow = z.infer<typeof DatasetRow>;

const jobFields = {
  run_id: z.string(),
  run_name: z.string(),
  /** 1 for the first worker that gets the run, one more for each that takes over. */
  attempt: z.int(),
  lease_token: z.string(),
  lease_seconds: z.number(),
  rollout: z.string(),
  entrypoint: z.string(),
  commit_sha: z.string(),
  env: z.record(z.string(), z.string()),
  secrets: z.record(z.string(), z.string()),
  /** The platform's own trainer; without it, what trains is the worker's engine. */
  trainer: z.object({ url: z.string(), api_key: z.string().optional() }).optional(),
  model: ModelAssignment,
  row_count: z.int(),
};

export const EvaluationJob = z.object({
  kind: z.literal("evaluation"),
  ...jobFields,
  config: AcceptedEvalConfig,
});
export type EvaluationJob = z.infer<typeof EvaluationJob>;

/** What a later step depends on of a committed one; null for a reward that nothing was given. */
export const PastStep = z.object({
  step: z.int(),
  /** Mean reward of the step's training rollouts. */
  reward: z.number().nullable(),
  validation_reward: z.number().nullable(),
  /** Validation rollouts that count; 0 where the step was not validated. */
  validation_n: z.int(),
  /** Skipped where the gradient was not finite; none where there was nothing to learn. */
  update: z.enum(["made", "skipped", "none"]),
});
export type PastStep = z.infer<typeof PastStep>;

export const TrainingJob = z.object({
  kind: z.literal("training"),
  ...jobFields,
  config: AcceptedTrainingConfig,
  /** The model of `[advanced].teacher_model`. */
  teacher: ModelAssignment.optional(),
  total_steps: z.int(),
  /** Steps that are committed; training goes on with the next one. */
  committed_steps: z.int(),
  /** The committed steps, in order. */
  past_steps: z.array(PastStep),
  /** The trainer's state after the last committed step; empty before the first. */
  state_files: z.array(FileRef),
});
export type TrainingJob = z.infer<typeof TrainingJob>;

/** Repeats the steps after `committed_steps` up to `last_step`; `total_steps` and `state_files` are of the run. */
export const ReplayJob = TrainingJob.omit({ past_steps: true }).extend({
  kind: z.literal("replay"),
  last_step: z.int(),
  /** What the last step is repeated with where that is not `config`. */
  last_config: AcceptedTrainingConfig.nullable(),
});
export type ReplayJob = z.infer<typeof ReplayJob>;

export const Job = z.discriminatedUnion("kind", [EvaluationJob, TrainingJob, ReplayJob]);
export type Job = z.infer<typeof Job>;

/** What the policy really saw and sampled in one unbroken conversation branch. Arrays have one length. */
export const TokenSequence = z
  .object({
    tokens: z.array(z.int()),
    /** 1 where the policy sampled the token, 0 for prompts, tool results and template. */
    mask: z.array(z.union([z.literal(0), z.literal(1)])),
    /** Natural-log probability under the sampler; 0 where the mask is 0. */
    logprobs: z.array(z.number()),
  })
  .refine(
    ({ tokens, mask, logprobs }) => mask.length === tokens.length && logprobs.length === tokens.length,
    "tokens, mask and logprobs differ in length",
  );
export type TokenSequence = z.infer<typeof TokenSequence>;

/** A rollout that has ended, as it is kept for ever. */
export const RolloutRecord = z.object({
  rollout_id: z.string(),
  phase: z.enum(["eval", "train", "validation"]),
  /** The step that it was sampled for, from 1; 0 in an evaluation. */
  step: z.int().min(0),
  row_index: z.int().min(0),
  sample_index: z.int().min(0),
  outcome: RolloutOutcome,
  /** Non-null only when the grader gave one: an infrastructure failure is never a reward of 0. */
  reward: z.number().nullable(),
  error: z.string().nullable(),
  label: z.string().nullable(),
  messages: z.array(z.record(z.string(), z.unknown())),
  metrics: z.record(z.string(), z.number()),
  sequences: z.array(TokenSequence),
  /** Oldest and newest weights that sampled a token of it. */
  weights_version_min: z.int().min(0),
  weights_version_max: z.int().min(0),
  prompt_tokens: z.int().min(0),
  completion_tokens: z.int().min(0),
  model_calls: z.int().min(0),
  /** Calls whose prompt did not extend the ids of the call before. */
  prefix_breaks: z.int().min(0),
  duration_ms: z.number(),
  trajectory: z.unknown().nullable(),
});
export type RolloutRecord = z.infer<typeof RolloutRecord>;

const ok = z.object({ ok: z.literal(true) });

/** So many that one statement of SQL takes them all. */
export const FileNames = z.array(z.string()).max(10_000);
export const LogEntries = z.array(LogEntry).max(10_000);

export const workerRoutes = {
  /**
   * Waits up to `wait_ms` for a run. A worker that registers again under its name gives up what it held before. Replays
   * have a lane of their own, so that nobody waits for one until a long run has ended.
   */
  claim: route({
    method: "POST",
    path: "/api/worker/claim",
    access: "worker",
    body: z.object({
      worker: z.string(),
      instance: z.string(),
      wait_ms: z.int().min(0).max(25_000),
      lane: z.enum(["runs", "replays"]).default("runs"),
    }),
    response: z.object({ job: Job.nullable() }),
  }),
  heartbeat: route({
    method: "POST",
    path: "/api/worker/runs/{run_id}/heartbeat",
    access: "worker",
    body: z.object({}),
    response: z.object({ stop_requested: z.boolean() }),
  }),
  record: route({
    method: "POST",
    path: "/api/worker/runs/{run_id}/rollouts",
    access: "worker",
    body: z.object({ rollouts: z.array(RolloutRecord) }),
    response: ok,
  }),
  /** Commits a step: its metrics, and the state files that were uploaded under `state/<step>/`. */
  commitStep: route({
    method: "POST",
    path: "/api/worker/runs/{run_id}/steps",
    access: "worker",
    body: z.object({
      step: z.int().min(1),
      metrics: z.record(z.string(), z.number()),
      examples: z.int().min(0),
      state_files: FileNames,
    }),
    response: ok,
  }),
  /** Registers the files that were uploaded under `checkpoints/<step>/` as a model. */
  checkpoint: route({
    method: "POST",
    path: "/api/worker/runs/{run_id}/checkpoints",
    access: "worker",
    body: z.object({
      step: z.int().min(1),
      /** Validation reward if the step was validated, else the mean training reward. */
      reward: z.number().nullable(),
      /** Null without a validation. With `reward` it decides which checkpoint of the run is the best one. */
      validation_reward: z.number().nullable().default(null),
      method: z.enum(["lora", "full"]),
      files: FileNames,
    }),
    response: z.object({ name: z.string() }),
  }),
  log: route({
    method: "POST",
    path: "/api/worker/runs/{run_id}/logs",
    access: "worker",
    body: z.object({ entries: LogEntries }),
    response: ok,
  }),
  finish: route({
    method: "POST",
    path: "/api/worker/runs/{run_id}/finish",
    access: "worker",
    body: z.object({ status: z.enum(["finished", "failed", "stopped"]), error: z.string().nullable() }),
    response: ok,
  }),
};

/** Routes whose bodies are streams rather than JSON documents. */
export const workerStreams = {
  /** GET: the run's rows, one `DatasetRow` a line. An evaluation gets its selected rows, in order. */
  rows: "/api/worker/runs/{run_id}/rows",
  /** GET: the commit's files as a tar archive. */
  source: "/api/worker/runs/{run_id}/source.tar",
  /** GET: the recorded rollouts that no committed step has used yet, one `RolloutRecord` a line. */
  rollouts: "/api/worker/runs/{run_id}/rollouts.jsonl",
  /** GET, for a replay: the training rollouts of a step of its run, one `RolloutRecord` a line. */
  stepRollouts: "/api/worker/runs/{run_id}/steps/{step}/rollouts.jsonl",
  /** PUT: the bytes of a file; `path` is `state/<step>/<name>`, `checkpoints/<step>/<name>` or `weights/<version>/<name>`. */
  file: "/api/worker/runs/{run_id}/files/{path}",
} as const;

import type {
  EvalResults,
  EvalRunConfig,
  EvalStatus,
  RolloutOutcome,
  TrainingRunConfig,
  TrainingStatus,
} from "@osmosis/protocol";
import type { Generated } from "kysely";
import type { CreatedAt, Json } from "../../database/columns.ts";
import type { RunModel } from "../models/service.ts";
import type { StoredFile } from "../models/tables.ts";
import type { SecretSource } from "../secrets/service.ts";

/** A `replay` repeats steps of a training run; no list of runs shows it. */
export type RunKind = "evaluation" | "training" | "replay";

/** What a replay repeats. */
export interface ReplayOrder {
  /** The last step. */
  readonly step: number;
  /** The step that it begins after; null until a worker has it. Then it stays, so that every attempt does the same. */
  readonly from_step: number | null;
  /** Settings of the last step that differ from the run's, by their place in the configuration. */
  readonly set: Readonly<Record<string, unknown>>;
  /** The configuration of the last step where it differs. */
  readonly last_config: TrainingRunConfig | null;
}
export type RunStatus = EvalStatus | TrainingStatus;

interface RunsTable {
  id: string;
  workspace_id: string;
  kind: RunKind;
  /** Unique among all runs of the workspace. */
  name: string;
  status: RunStatus;
  error: string | null;
  /** Somebody asked for the end of a run that a worker holds. */
  stop_requested: Generated<boolean>;
  created_by: string;
  created_at: CreatedAt;
  started_at: Date | null;
  completed_at: Date | null;
  /** Of the catalogue of rollouts; empty when the commit was never the head of a branch. */
  rollout_id: string;
  rollout: string;
  entrypoint: string;
  branch: string | null;
  commit_sha: string;
  dataset_id: string;
  dataset_version_id: string;
  dataset_name: string;
  /** Rows of the data set. */
  dataset_rows: number;
  /** The rows of an evaluation, in order; null for all. */
  row_indexes: Json<readonly number[] | null> | null;
  model: Json<RunModel>;
  /** Of a training run that distils. */
  teacher: Json<RunModel | null> | null;
  config: Json<EvalRunConfig | TrainingRunConfig>;
  secret_sources: Json<Readonly<Record<string, SecretSource>>>;
  /** Null for an evaluation. */
  total_steps: number | null;
  committed_steps: Generated<number>;
  /** Rollouts of the committed steps. */
  examples: Generated<number>;
  /** The trainer's state after the last committed step; of a replay the one that it began with. */
  state_files: Json<readonly StoredFile[]>;
  /** Of an evaluation that has ended; before that they are computed from its rollouts. */
  results: Json<EvalResults | null> | null;
  /** The run that a replay repeats. */
  replay_of: string | null;
  replay: Json<ReplayOrder | null> | null;
  idempotency_key: string | null;
  /** Hash of the request that the idempotency key came with. */
  request_sha256: string | null;
  worker: string | null;
  worker_instance: string | null;
  /** Kept after the end, so that the worker that ended the run may say so again. */
  lease_token: string | null;
  lease_expires_at: Date | null;
  /** How often the run was handed to a worker. */
  attempt: Generated<number>;
  /** Attempts since something was last recorded. */
  fruitless_attempts: Generated<number>;
  /** The attempt of the queue's job that the lease goes with. */
  job_attempt: Generated<number>;
}

/** Values that were given for one run only; gone when it ends. */
interface RunSecretsTable {
  run_id: string;
  name: string;
  sealed: string;
}

interface RunStepsTable {
  run_id: string;
  /** From 1. */
  step: number;
  metrics: Json<Readonly<Record<string, number>>>;
  examples: number;
  created_at: CreatedAt;
}

/** What a worker uploaded: states, checkpoints, and the weights of a run that is spread. */
interface RunFilesTable {
  run_id: string;
  /** `state/<step>/<name>`, `checkpoints/<step>/<name>` or `weights/<version>/<name>`. */
  path: string;
  key: string;
  size_bytes: number;
  sha256: string;
}

/** A rollout that has ended, without its conversation: that is a line of a blob. */
interface RunRolloutsTable {
  run_id: string;
  rollout_id: string;
  /** The order of recording. */
  number: Generated<number>;
  phase: "eval" | "train" | "validation";
  step: number;
  row_index: number;
  sample_index: number;
  outcome: RolloutOutcome;
  reward: number | null;
  error: string | null;
  prompt_tokens: number;
  completion_tokens: number;
  model_calls: number;
  prefix_breaks: number;
  duration_ms: number;
  /** What was told beside the reward; of evaluations alone. */
  metrics: Json<Readonly<Record<string, number>>>;
  /** The blob, and the bytes of the line in it, both ends inclusive. */
  body_key: string;
  body_start: number;
  body_end: number;
  /** The share that it was recorded in; null when the worker ran it that held the run. */
  share_id: string | null;
  worker: string | null;
  created_at: CreatedAt;
}

/** Every start of a worker that has asked for a run. */
interface WorkersTable {
  instance: string;
  /** Two workers that run at the same time have different names; a worker keeps its name when it starts again. */
  name: string;
  first_seen_at: CreatedAt;
  last_seen_at: CreatedAt;
}

export interface RunTables {
  workers: WorkersTable;
  runs: RunsTable;
  run_secrets: RunSecretsTable;
  run_steps: RunStepsTable;
  run_files: RunFilesTable;
  run_rollouts: RunRolloutsTable;
}

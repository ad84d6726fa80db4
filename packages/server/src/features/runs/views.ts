import {
  type EvalDetail,
  type EvalMetrics,
  type EvalResults,
  type EvalRun,
  EvalStatus,
  type Submitted,
  type TrainingDetail,
  type TrainingRun,
} from "@osmosis/protocol";
import type { z } from "zod";
import type { WorkspaceAccess } from "../workspaces/service.ts";
import type { RunRow } from "./run-rows.ts";
import { lastStep, newestValidation } from "./training-headline.ts";

/** Where a view's links lead. */
export type ViewPlace = { readonly url: string; readonly workspace: WorkspaceAccess };

export function submittedView(row: RunRow, place: ViewPlace): z.input<typeof Submitted> {
  return {
    id: row.id,
    name: row.name,
    status: row.status,
    created_at: row.created_at.toISOString(),
    platform_url: pageOfRun(row, place),
  };
}

/** @param results - null while the run waits */
export function evalRunView(row: RunRow, place: ViewPlace, results: EvalResults | null): EvalRun {
  return {
    ...common(row, place),
    // Evaluations do not crash: see `lifecycle.ts`.
    status: EvalStatus.parse(row.status),
    results,
    config: flatConfig(row),
    ...references(row),
  };
}

export function evalDetailView(
  row: RunRow,
  place: ViewPlace,
  results: EvalResults | null,
): z.input<typeof EvalDetail> {
  return {
    eval_run: evalRunView(row, place, results),
    config: flatConfig(row),
    results,
    ...references(row),
    ...resolved(row),
  };
}

export function evalMetricsView(row: RunRow, results: EvalResults, now: Date): z.input<typeof EvalMetrics> {
  const { reward_stats: stats } = results;
  return {
    eval_run_id: row.id,
    status: EvalStatus.parse(row.status),
    overview: {
      duration_ms: durationOf(row, now),
      total_samples: results.total_runs,
      completed_samples: results.total_runs - results.skipped,
      graded: results.graded,
      passed: results.passed,
      failed: results.failed,
      skipped: results.skipped,
      pass_rate: results.pass_rate,
      pass_threshold: results.pass_threshold,
      tokens_used: results.total_tokens,
    },
    reward_stats: stats,
    pass_at_k: Object.entries(stats?.pass_at_k ?? {}).map(([k, value]) => ({ k: Number(k), value })),
  };
}

export function trainingRunView(row: RunRow, place: ViewPlace): TrainingRun {
  return {
    ...common(row, place),
    status: row.status,
    current_step: row.committed_steps,
    total_steps: row.total_steps,
    reward: row.last_metrics?.["rollout/raw_reward"] ?? null,
    pass_rate: row.last_metrics?.["rollout/pass_rate"] ?? null,
    validation: newestValidation(row),
    last_step: lastStep(row),
    examples_processed_count: row.examples,
    notes: null,
    ...references(row),
  };
}

export function trainingDetailView(row: RunRow, place: ViewPlace): z.input<typeof TrainingDetail> {
  return {
    training_run: trainingRunView(row, place),
    ...references(row),
    config: flatConfig(row),
    ...resolved(row),
  };
}

/** Milliseconds from the first claim to the end, or until now. */
export function durationOf(row: Pick<RunRow, "started_at" | "completed_at">, now: Date): number | null {
  if (row.started_at === null) return null;
  return (row.completed_at ?? now).getTime() - row.started_at.getTime();
}

function common(row: RunRow, place: ViewPlace) {
  return {
    id: row.id,
    name: row.name,
    error: row.error,
    created_at: row.created_at.toISOString(),
    started_at: row.started_at?.toISOString() ?? null,
    completed_at: row.completed_at?.toISOString() ?? null,
    creator_name: row.creator_name,
    creator_email: row.creator_email,
    platform_url: pageOfRun(row, place),
  };
}

function references(row: RunRow) {
  const { model } = row;
  return {
    model: { id: model.type === "local" ? model.id : model.name, name: model.name, model_name: model.name },
    dataset: { id: row.dataset_id, name: row.dataset_name, file_name: row.dataset_name },
    rollout: { id: row.rollout_id, name: row.rollout },
  };
}

function resolved(row: RunRow) {
  return {
    entrypoint: row.entrypoint,
    branch: row.branch,
    commit_sha: row.commit_sha,
    env_config: Object.keys(row.config.env).length === 0 ? null : row.config.env,
    resolved_secret_scopes: { ...row.secret_sources },
  };
}

/** Every setting by its key alone, defaults included; no two tables share a key. */
export function flatConfig({ config }: RunRow): Record<string, unknown> {
  return "evaluation" in config
    ? { ...config.experiment, ...config.evaluation, ...config.advanced }
    : {
        ...config.experiment,
        ...config.training,
        ...config.sampling,
        ...config.checkpoints,
        ...config.advanced,
      };
}

function pageOfRun(row: RunRow, { url, workspace }: ViewPlace): string {
  const kind = row.kind === "evaluation" ? "eval-runs" : "training-runs";
  return `${url}/${workspace.name}/${kind}/${encodeURIComponent(row.name)}`;
}

import { z } from "zod";
import { RolloutOutcome } from "../outcome.ts";
import { route } from "../route.ts";
import { Estimate } from "./estimate.ts";
import { TrainingStatus } from "./runs.ts";

/** What the run doctor found, with the numbers that it stands on. */
export const Finding = z.object({
  /** An alarm says that the run is sick; advice, how a healthy one may learn more. */
  severity: z.enum(["alarm", "advice"]),
  /** Name of the rule: `errored_rollouts`. */
  rule: z.string(),
  title: z.string(),
  /** The observation beside its threshold, for a person. */
  evidence: z.string(),
  values: z.record(z.string(), z.number()),
  /** First and last committed step that it speaks of; null when it is about none. */
  steps: z.object({ first: z.int(), last: z.int() }).nullable(),
  what_to_do: z.string(),
  /** Rollouts to look at. */
  rollouts: z.array(z.object({ id: z.string(), step: z.int(), outcome: RolloutOutcome })),
});
export type Finding = z.infer<typeof Finding>;

export const Diagnosis = z.object({
  training_run_id: z.string(),
  name: z.string(),
  status: TrainingStatus,
  checked_at: z.string(),
  latest_step: z.int(),
  /** Alarms first. Advice is given only where there is no alarm: a sick run has to be healed before it is tuned. */
  findings: z.array(Finding),
  /** The rules that were asked. */
  rules: z.array(z.string()),
});
export type Diagnosis = z.infer<typeof Diagnosis>;

/** A curve in four numbers, over the steps that have a value. */
const CurveSummary = z.object({
  points: z.int(),
  first: z.number(),
  last: z.number(),
  least: z.number(),
  most: z.number(),
  /** Mean value over the steps from the first to the last, by trapezoids: the area below the curve by its width. */
  average: z.number(),
});
export type CurveSummary = z.infer<typeof CurveSummary>;

/** The same held-out rows in two runs: what the second is better by. */
const PairedDifference = z.object({
  a: z.string(),
  b: z.string(),
  a_step: z.int(),
  b_step: z.int(),
  rows: z.int(),
  /** Mean of reward(b) − reward(a) over the rows with both, with a 95 % interval: Student's, or Agresti and Min's where no row differs. */
  reward: Estimate.nullable(),
  /** Mean of pass(b) − pass(a) over the rows that count in both. Each is null below two rows, and where all rows differ by the same part of 1. */
  pass_rate: Estimate.nullable(),
  /** Rows that only one of the two passes. */
  only_a_passes: z.int(),
  only_b_passes: z.int(),
  /** Two-sided sign test over the rows that only one of the two passes; null when there is none. */
  sign_test_p: z.number().nullable(),
});
export type PairedDifference = z.infer<typeof PairedDifference>;

export const RunComparison = z.object({
  runs: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      status: TrainingStatus,
      current_step: z.int(),
      total_steps: z.int().nullable(),
      model: z.string(),
      dataset: z.string(),
      commit_sha: z.string(),
      platform_url: z.string(),
    }),
  ),
  /** Settings whose values differ, by key, one value for each run in the order of `runs`; null where a run has none. */
  differences: z.array(z.object({ key: z.string(), values: z.array(z.unknown()) })),
  curves: z.array(
    z.object({
      key: z.string(),
      /** In the order of `runs`; null where the run has no such curve. */
      summaries: z.array(CurveSummary.nullable()),
      points: z.array(z.array(z.object({ step: z.int(), value: z.number() }))),
    }),
  ),
  /** Each further run against the first; only where both were validated on the same rows of the same data. */
  paired: z.array(PairedDifference),
  /** Why a pair of runs has no paired difference. */
  notes: z.array(z.string()),
});
export type RunComparison = z.infer<typeof RunComparison>;

/** At most so many runs are compared at once. */
export const MOST_COMPARED = 8;

export const analysisRoutes = {
  doctor: route({
    method: "GET",
    path: "/api/cli/training-runs/{name}/doctor",
    access: "workspace",
    response: Diagnosis,
  }),
  /** `runs` are names or ids with commas between them, two at least. */
  compare: route({
    method: "GET",
    path: "/api/cli/training-run-comparison",
    access: "workspace",
    query: z.object({ runs: z.string() }),
    response: RunComparison,
  }),
};

/** For a worker that takes a run over: what the committed steps after one measured. */
export const committedStepsRoute = route({
  method: "GET",
  path: "/api/worker/runs/{run_id}/steps",
  access: "worker",
  query: z.object({ after: z.coerce.number().int().min(0) }),
  response: z.object({
    steps: z.array(
      z.object({ step: z.int(), committed_at: z.string(), metrics: z.record(z.string(), z.number()) }),
    ),
  }),
});

export const ExportQuery = z.object({
  what: z.enum(["metrics", "rollouts"]).default("metrics"),
  format: z.enum(["jsonl", "csv"]).default("jsonl"),
});
export type ExportQuery = z.infer<typeof ExportQuery>;

/**
 * GET: a file as a stream. The header {@link EXPORT_ROWS_HEADER} says how many lines follow, so that a client knows
 * whether it has them all. What is recorded after the export began is not in it.
 */
export const exportStreams = {
  training: "/api/cli/training-runs/{name}/export",
  evaluation: "/api/cli/eval-runs/{name}/export",
  /** The same for a link in a browser, which sends no header: the workspace is in the path. */
  trainingFile: "/api/workspaces/{workspace}/training-runs/{name}/export",
  evaluationFile: "/api/workspaces/{workspace}/eval-runs/{name}/export",
} as const;

export const EXPORT_ROWS_HEADER = "x-osmosis-export-rows";

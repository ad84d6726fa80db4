import { EvalResults, EvalRun } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { evalSummary } from "./row.ts";
import { evalFields } from "./run-fields.ts";
import { progressOf } from "./wait.ts";

const results = EvalResults.parse({
  score: 1,
  score_ci: null,
  pass_rate: 1,
  pass_rate_ci: null,
  temperature: 0,
  pass_threshold: 1,
  graded: 1,
  passed: 1,
  failed: 0,
  skipped: 0,
  total_runs: 1,
  sampled_rows: 1,
  total_dataset_rows: 1,
  total_tokens: 0,
  outcomes: { ok: 1 },
  reward_stats: null,
});

const run = EvalRun.parse({
  id: "1",
  name: "measured",
  status: "finished",
  error: null,
  created_at: "2026-01-01T00:00:00.000Z",
  started_at: null,
  completed_at: null,
  creator_name: null,
  creator_email: null,
  platform_url: "http://127.0.0.1/r",
  model: { id: "1", name: "m" },
  dataset: { id: "1", name: "d" },
  rollout: { id: "1", name: "r" },
  results,
  config: { n: 3 },
});

test("an evaluation is done when every attempt at every row is", () => {
  expect(evalSummary(run)["progress"]).toEqual({ completed: 1, total: 3, unit: "samples" });
  expect(progressOf({ kind: "eval", run }, () => "")).toMatchObject({ done: 1, total: 3 });
});

test("an evaluation whose numbers may not mean what they seem to says why; others say nothing of it", () => {
  const warned = { ...run, results: { ...results, warnings: ["The model answered no call."] } };
  expect(evalFields(warned)).toContainEqual(["Warning", "The model answered no call."]);
  expect(evalFields(run).map(([name]) => name)).not.toContain("Warning");
});

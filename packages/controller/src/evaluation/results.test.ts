import { EvalResults } from "@osmosis/protocol";
import type { RolloutOutcome } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { evaluationResults } from "./results.ts";
import type { EvaluatedRollout } from "./results.ts";
import { clusteredMeanInterval, passAtK, quantile, studentQuantile, wilsonInterval } from "./statistics.ts";

const facts = { passThreshold: 1, sampledRows: 3, totalDatasetRows: 30, temperature: 0 };

function rollout(
  row: number,
  sample: number,
  reward: number | null,
  outcome: RolloutOutcome = "ok",
): EvaluatedRollout {
  return { row_index: row, sample_index: sample, outcome, reward, prompt_tokens: 10, completion_tokens: 5 };
}

test("results follow the counting rules, whatever the order of the rollouts", () => {
  const rollouts = [
    rollout(0, 0, 1),
    rollout(0, 1, 0.5),
    rollout(1, 0, null, "agent"),
    rollout(1, 1, 1, "truncated"),
    rollout(2, 0, null, "provider"),
    rollout(2, 1, 0),
    rollout(3, 0, null, "cancelled"),
    rollout(3, 1, null, "grader"),
  ];
  const results = evaluationResults(rollouts, facts);
  expect(EvalResults.parse(results)).toEqual(results);
  expect(results).toMatchObject({
    score: 0.625,
    pass_rate: 2 / 6,
    pass_rate_ci: { value: 2 / 6, n: 6 },
    graded: 4,
    passed: 2,
    failed: 2,
    skipped: 2,
    total_runs: 8,
    sampled_rows: 3,
    total_dataset_rows: 30,
    total_tokens: 120,
    temperature: 0,
    pass_threshold: 1,
    outcomes: { ok: 3, truncated: 1, agent: 1, provider: 1, cancelled: 1, grader: 1 },
    // Rows with both attempts counted: 0 (one of two passes) and 1 (one of two).
    reward_stats: { mean: 0.625, min: 0, median: 0.75, max: 1, pass_at_k: { "1": 0.25, "2": 1 } },
  });
  expect(results.reward_stats?.std).toBeCloseTo(0.414578, 6);
  expect(evaluationResults(rollouts.toReversed(), facts)).toEqual(results);
});

test("an evaluation without a graded rollout has no score", () => {
  const results = evaluationResults([rollout(0, 0, null, "lost")], facts);
  expect(EvalResults.parse(results)).toMatchObject({
    score: null,
    score_ci: null,
    pass_rate: 0,
    pass_rate_ci: null,
    skipped: 1,
    reward_stats: null,
  });
  expect(evaluationResults([], facts)).toMatchObject({ total_runs: 0, outcomes: {} });
});

test("one attempt per row has no pass@k", () => {
  expect(
    evaluationResults([rollout(0, 0, 1), rollout(1, 0, 0)], facts).reward_stats?.pass_at_k,
  ).toBeUndefined();
});

test("pass@k has its golden values", () => {
  expect(passAtK(10, 3, 1)).toBeCloseTo(0.3, 10);
  expect(passAtK(10, 3, 5)).toBeCloseTo(0.916667, 6);
  expect(passAtK(8, 1, 4)).toBeCloseTo(0.5, 10);
  expect(passAtK(8, 0, 4)).toBe(0);
  expect(passAtK(4, 3, 4)).toBe(1);
});

test("Wilson's interval has the textbook's values and stays inside 0 and 1", () => {
  expect(wilsonInterval(10, 20)).toEqual({
    value: 0.5,
    ci_low: expect.closeTo(0.299298, 6),
    ci_high: expect.closeTo(0.700702, 6),
    n: 20,
  });
  expect(wilsonInterval(0, 10)).toMatchObject({ ci_low: 0, ci_high: expect.closeTo(0.277533, 6) });
  expect(wilsonInterval(10, 10)).toMatchObject({ ci_low: expect.closeTo(0.722467, 6), ci_high: 1 });
  expect(wilsonInterval(0, 0)).toBeNull();
});

test("Student's quantiles are right to three digits", () => {
  const table = { 1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.98 };
  for (const [degrees, value] of Object.entries(table)) {
    expect(Math.abs(studentQuantile(Number(degrees)) / value - 1)).toBeLessThan(1e-3);
  }
});

test("the mean's interval is Student's for one attempt per row, and wider when attempts repeat each other", () => {
  const single = [1, 2, 3, 4].map((value, cluster) => ({ cluster, value }));
  // Mean 2.5, standard error 0.645497, t(3) 3.182446.
  expect(clusteredMeanInterval(single)).toMatchObject({
    value: 2.5,
    ci_low: expect.closeTo(0.445739, 5),
    ci_high: expect.closeTo(4.554261, 5),
    n: 4,
  });
  const repeated = [...single, ...single];
  const interval = clusteredMeanInterval(repeated);
  expect(interval?.n).toBe(8);
  expect(interval?.ci_low).toBeCloseTo(clusteredMeanInterval(single)?.ci_low ?? 0, 10);
  expect(
    clusteredMeanInterval([
      { cluster: 0, value: 1 },
      { cluster: 0, value: 2 },
    ]),
  ).toBeNull();
});

test("quantiles lie between their neighbours", () => {
  expect(quantile([1, 2, 3, 10], 0.5)).toBe(2.5);
  expect([quantile([1, 2, 3, 10], 0), quantile([1, 2, 3, 10], 1), quantile([4], 0.5)]).toEqual([1, 10, 4]);
});

import { EvalResults } from "@osmosis/protocol";
import type { RolloutOutcome } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { evaluationResults } from "./results.ts";
import type { EvaluatedRollout } from "./results.ts";
import { meanInterval, passAtK, quantile, shareInterval, studentQuantile } from "./statistics.ts";

const facts = { passThreshold: 1, sampledRows: 3, totalDatasetRows: 30, temperature: 0 };

function rollout(
  row: number,
  sample: number,
  reward: number | null,
  outcome: RolloutOutcome = "ok",
): EvaluatedRollout {
  const tokens = { prompt_tokens: 10, completion_tokens: 5, model_calls: 1 };
  return { row_index: row, sample_index: sample, outcome, reward, ...tokens, metrics: {} };
}

test("of more names of metrics than can be shown those count that most rollouts have, and it is said", () => {
  const rollouts = Array.from({ length: 300 }, (_, row) => ({
    ...rollout(row, 0, 1),
    metrics: { [`of_row_${row}`]: row, turns: 2 },
  }));
  const { components, warnings } = evaluationResults(rollouts, facts);
  expect(Object.keys(components)).toHaveLength(256);
  expect(components["turns"]).toEqual({ mean: 2, n: 300 });
  expect(warnings).toEqual([expect.stringMatching(/^The rollouts gave 301 metrics .* the 256 that most/)]);
  expect(evaluationResults(rollouts.slice(0, 255), facts)).toMatchObject({ warnings: [] });
});

test("what a grader told beside the reward is averaged over the graded rollouts that have it", () => {
  const rollouts = [
    { ...rollout(0, 0, 1), metrics: { used_tool: 1, ["__proto__"]: 3 } },
    { ...rollout(1, 0, 0), metrics: { used_tool: 0, turns: 4 } },
    { ...rollout(2, 0, null, "agent"), metrics: { turns: 9 } },
    { ...rollout(3, 0, null, "provider"), metrics: { turns: 9 } },
  ];
  const { components } = evaluationResults(rollouts, facts);
  expect(Object.entries(components)).toEqual([
    ["used_tool", { mean: 0.5, n: 2 }],
    ["__proto__", { mean: 3, n: 1 }],
    ["turns", { mean: 4, n: 1 }],
  ]);
  expect(evaluationResults([], facts).components).toEqual({});
});

test("rewards that no answer of the model stands behind are told, of graded rollouts only", () => {
  const silent = (row: number, reward: number | null, outcome: RolloutOutcome = "ok") => ({
    ...rollout(row, 0, reward, outcome),
    model_calls: 0,
  });
  const warningsOf = (...rollouts: EvaluatedRollout[]) => evaluationResults(rollouts, facts).warnings;
  expect(warningsOf(silent(0, 1), silent(1, 0), rollout(2, 0, 1))).toEqual([
    expect.stringMatching(/^In 2 of 3 graded rollouts the model answered no call/),
  ]);
  expect(warningsOf(rollout(0, 0, 1), silent(1, null, "agent"), silent(2, null, "provider"))).toEqual([]);
});

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

/** So many successes and failures, each a row of its own, or as attempts at rows of `perRow`. */
function shares(successes: number, failures: number, perRow = 1) {
  return Array.from({ length: successes + failures }, (_, index) => ({
    cluster: Math.floor(index / perRow),
    value: index < successes ? 1 : 0,
  }));
}

test("a share's interval has the textbook's values and stays inside 0 and 1", () => {
  expect(shareInterval(shares(10, 10))).toEqual({
    value: 0.5,
    ci_low: expect.closeTo(0.299298, 6),
    ci_high: expect.closeTo(0.700702, 6),
    n: 20,
  });
  expect(shareInterval(shares(0, 10))).toMatchObject({ ci_low: 0, ci_high: expect.closeTo(0.277533, 6) });
  expect(shareInterval(shares(10, 0))).toMatchObject({ ci_low: expect.closeTo(0.722467, 6), ci_high: 1 });
  expect(shareInterval([])).toBeNull();
});

test("attempts that repeat each other narrow no share's interval, attempts that differ do", () => {
  const rows = shareInterval(shares(10, 10));
  const width = {
    ci_low: expect.closeTo(rows?.ci_low ?? 0, 9),
    ci_high: expect.closeTo(rows?.ci_high ?? 0, 9),
  };
  expect(shareInterval(shares(40, 40, 4))).toEqual({ value: 0.5, ...width, n: 80 });
  // Each of 40 rows passes once and fails once: 80 attempts that say nothing of each other.
  const mixed = shares(40, 40).map(({ value }, index) => ({ cluster: index % 40, value }));
  expect(shareInterval(mixed)).toEqual(shareInterval(shares(40, 40)));
  // All pass: the rows may have been easy.
  expect(shareInterval(shares(80, 0, 4))?.ci_low).toBeCloseTo(shareInterval(shares(20, 0))?.ci_low ?? 0, 12);
  expect(shareInterval(shares(8, 8, 16))).toEqual(shareInterval(shares(8, 8)));
});

test("a mean of rewards that are 0 or 1 has a share's interval, other rewards have Student's", () => {
  const rewarded = (rewards: readonly number[]) =>
    evaluationResults(
      rewards.map((reward, row) => rollout(row, 0, reward)),
      facts,
    );
  const nearlyAll = rewarded(shares(198, 2).map(({ value }) => value));
  expect(nearlyAll.score_ci).toEqual(nearlyAll.pass_rate_ci);
  expect(nearlyAll.score_ci).toMatchObject({ value: 0.99, ci_low: expect.closeTo(0.9643, 4), n: 200 });
  expect(nearlyAll.score_ci?.ci_high).toBeLessThan(1);
  const all = rewarded(shares(20, 0).map(({ value }) => value)).score_ci;
  expect(all?.ci_low).toBeLessThan(0.9);
  expect(rewarded([0.5, 1, 1, 1]).score_ci?.ci_high).toBeGreaterThan(1);
  expect(rewarded([1]).score_ci).toBeNull();
});

test("an evaluation may have more rows than a call has arguments", () => {
  const rollouts = Array.from({ length: 150_000 }, (_, row) => rollout(row, 0, row % 2));
  expect(evaluationResults(rollouts, facts)).toMatchObject({ score: 0.5, graded: 150_000 });
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
  expect(meanInterval(single)).toMatchObject({
    value: 2.5,
    ci_low: expect.closeTo(0.445739, 5),
    ci_high: expect.closeTo(4.554261, 5),
    n: 4,
  });
  const repeated = [...single, ...single];
  const interval = meanInterval(repeated);
  expect(interval?.n).toBe(8);
  expect(interval?.ci_low).toBeCloseTo(meanInterval(single)?.ci_low ?? 0, 10);
  expect(
    meanInterval([
      { cluster: 0, value: 1 },
      { cluster: 0, value: 2 },
    ]),
  ).toBeNull();
});

test("quantiles lie between their neighbours", () => {
  expect(quantile([1, 2, 3, 10], 0.5)).toBe(2.5);
  expect([quantile([1, 2, 3, 10], 0), quantile([1, 2, 3, 10], 1), quantile([4], 0.5)]).toEqual([1, 10, 4]);
});

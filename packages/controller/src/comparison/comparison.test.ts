import type { RolloutOutcome } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { alignCurves, differencesOf, summaryOf } from "./curves.ts";
import { pairedDifference, pairedRows, signTest, type ValidationRollout } from "./paired.ts";

const curve = (...values: number[]) => values.map((value, index) => ({ step: index + 1, value }));

test("curves of runs of different lengths are lined up by key, the important ones first", () => {
  const a = new Map([
    ["train/lr", curve(1, 1)],
    ["rollout/raw_reward", curve(0, 1, 2)],
  ]);
  const b = new Map([["rollout/raw_reward", curve(0.5)]]);
  expect(alignCurves([a, b])).toEqual([
    {
      key: "rollout/raw_reward",
      points: [curve(0, 1, 2), curve(0.5)],
      summaries: [
        { points: 3, first: 0, last: 2, least: 0, most: 2, average: 1 },
        { points: 1, first: 0.5, last: 0.5, least: 0.5, most: 0.5, average: 0.5 },
      ],
    },
    {
      key: "train/lr",
      points: [curve(1, 1), []],
      summaries: [{ points: 2, first: 1, last: 1, least: 1, most: 1, average: 1 }, null],
    },
  ]);
});

test("the average of a curve with gaps is the area below it by its width", () => {
  // A trapezoid of 10 × (0 + 1) / 2 and one of 30 × 1.
  const points = [
    { step: 10, value: 0 },
    { step: 20, value: 1 },
    { step: 50, value: 1 },
  ];
  expect(summaryOf(points)?.average).toBeCloseTo(35 / 40, 12);
});

test("only settings that differ are told, also those that one run does not have", () => {
  const [a, b] = [
    { lr: 1e-5, loss: "ppo", reward_range: [0, 1] },
    { lr: 2e-5, loss: "ppo", reward_range: [0, 1], max_steps: 5 },
  ];
  expect(differencesOf([a, b])).toEqual([
    { key: "lr", values: [1e-5, 2e-5] },
    { key: "max_steps", values: [null, 5] },
  ]);
  expect(differencesOf([a, a, a])).toEqual([]);
});

const rolloutsOf = (
  rewards: readonly (number | null)[],
  outcome: RolloutOutcome = "ok",
): ValidationRollout[] =>
  rewards.map((reward, row_index) => ({ row_index, reward, outcome: reward === null ? outcome : "ok" }));

const validationOf = (run: string, rollouts: readonly ValidationRollout[]) => ({
  run,
  step: 5,
  passThreshold: 1,
  rollouts,
});

test("a paired difference has the mean and the Student interval of the differences by row", () => {
  const a = validationOf("a", rolloutsOf([0, 0, 1, 0, 1]));
  const b = validationOf("b", rolloutsOf([1, 0, 1, 1, 1]));
  // Differences 1, 0, 0, 1, 0: mean 0.4, standard error √(0.3 / 5), t with 4 degrees of freedom 2.7764.
  const half = 2.7764 * Math.sqrt(0.3 / 5);
  const estimate = {
    value: 0.4,
    ci_low: expect.closeTo(0.4 - half, 2),
    ci_high: expect.closeTo(0.4 + half, 2),
    n: 5,
  };
  expect(pairedDifference(a, b)).toEqual({
    a: "a",
    b: "b",
    a_step: 5,
    b_step: 5,
    rows: 5,
    reward: estimate,
    pass_rate: estimate,
    only_a_passes: 0,
    only_b_passes: 2,
    sign_test_p: 0.5,
  });
});

test("runs that pass the same rows are not known to be equal on others: their interval narrows with the rows", () => {
  const same = (rows: number) => {
    const rollouts = rolloutsOf(Array.from({ length: rows }, (_, row) => (row % 4 === 0 ? 0 : 1)));
    return pairedDifference(validationOf("a", rollouts), validationOf("b", rollouts));
  };
  // Half a row more in each cell: standard error √1 / (n + 2).
  const half = expect.closeTo(1.96 / 102, 4);
  const estimate = { value: 0, ci_low: expect.closeTo(-1.96 / 102, 4), ci_high: half, n: 100 };
  expect(same(100)).toMatchObject({ reward: estimate, pass_rate: estimate, sign_test_p: null });
  expect(same(400).pass_rate?.ci_high).toBeCloseTo(1.96 / 402, 4);
  expect(same(1)).toMatchObject({ reward: null, pass_rate: null });
});

test("a run that alone passes every row is better, by less for certain the fewer the rows are", () => {
  const a = validationOf("a", rolloutsOf(Array.from({ length: 20 }, () => 0)));
  const b = validationOf("b", rolloutsOf(Array.from({ length: 20 }, () => 1)));
  // Cells 20.5 and 0.5 of 22 rows: (20 ± 1.96 √(21 − 20²/22)) / 22.
  const low = (20 - 1.96 * Math.sqrt(21 - 400 / 22)) / 22;
  expect(pairedDifference(a, b).pass_rate).toEqual({
    value: 1,
    ci_low: expect.closeTo(low, 4),
    ci_high: 1,
    n: 20,
  });
  expect(pairedDifference(b, a).pass_rate).toEqual({
    value: -1,
    ci_low: -1,
    ci_high: expect.closeTo(-low, 4),
    n: 20,
  });
});

test("where every row gains the same part of a reward, no interval is told", () => {
  const [a, b] = [validationOf("a", rolloutsOf([0, 0, 0])), validationOf("b", rolloutsOf([0.5, 0.5, 0.5]))];
  expect(pairedDifference(a, b).reward).toBeNull();
});

test("a row without an answer in one run is left out; an agent's failure is none of a pass, and no reward", () => {
  const a = validationOf("a", rolloutsOf([1, null, 1, 0]));
  const failing = validationOf("b", rolloutsOf([null, 1, null, 1], "agent"));
  expect(pairedDifference(a, failing)).toMatchObject({
    // Rows 0, 2 and 3 count in both; row 1 does, too: the agent of a answered nothing, with the outcome ok.
    rows: 4,
    only_a_passes: 2,
    only_b_passes: 2,
    reward: null,
  });
  const unreachable = validationOf("b", rolloutsOf([null, 1, null, 1], "provider"));
  expect(pairedDifference(a, unreachable)).toMatchObject({ rows: 2, only_a_passes: 0, only_b_passes: 2 });
});

test("a row is won by passing more of its attempts, and rows of one run alone count in no difference", () => {
  const attempts = (byRow: Readonly<Record<number, readonly number[]>>) => ({
    passThreshold: 0.5,
    rollouts: Object.entries(byRow).flatMap(([row, rewards]) =>
      rewards.map((reward): ValidationRollout => ({ row_index: Number(row), outcome: "ok", reward })),
    ),
  });
  const a = attempts({ 1: [0, 0], 2: [1, 1], 3: [0, 1], 8: [1] });
  const b = attempts({ 1: [0, 0.5], 2: [1, 0], 3: [1, 0], 4: [1], 5: [0] });
  expect(pairedRows(a, b)).toMatchObject({
    rows: 3,
    pass_rate: { value: 0, n: 3 },
    reward: { value: expect.closeTo((0.25 - 0.5) / 3) },
    won_rows: [1],
    lost_rows: [2],
    sign_test_p: 1,
    rows_only_in_a: 1,
    rows_only_in_b: 2,
  });
});

test.each([
  [0, 0, null],
  [0, 5, 0.0625],
  [5, 5, 1],
  [1, 9, 22 / 1024],
  [900, 1100, 8.4e-6],
])("the sign test of %d to %d is %d", (losses, wins, p) => {
  const found = signTest(losses, wins);
  if (p === null) expect(found).toBeNull();
  else expect((found ?? 0) / p).toBeCloseTo(1, 1);
});

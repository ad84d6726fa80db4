import { expect, test } from "vitest";
import { centred, groupStd, maxRl, rloo } from "./advantages.ts";
import type { AdvantageEstimator } from "./advantages.ts";

/** Golden values, computed in float64 apart from this code. */
const cases: [string, AdvantageEstimator, number[][]][] = [
  [
    "centred",
    centred,
    [
      [0.5, -0.5, -0.5, 0.5],
      [0.75, -0.25, -0.25, -0.25],
      [-0.333333, -0.033333, 0.366667],
    ],
  ],
  [
    "group_std as in TRL",
    groupStd(1e-4),
    [
      [0.865875, -0.865875, -0.865875, 0.865875],
      [1.4997, -0.4999, -0.4999, -0.4999],
      [-0.948888, -0.094889, 1.043777],
    ],
  ],
  [
    "group_std as in verl",
    groupStd(1e-6),
    [
      [0.866024, -0.866024, -0.866024, 0.866024],
      [1.499997, -0.499999, -0.499999, -0.499999],
      [-0.949155, -0.094916, 1.044071],
    ],
  ],
  [
    "rloo",
    rloo,
    [
      [0.666667, -0.666667, -0.666667, 0.666667],
      [1, -0.333333, -0.333333, -0.333333],
      [-0.5, -0.05, 0.55],
    ],
  ],
  [
    "maxRl",
    maxRl(1e-6),
    [
      [0.999998, -0.999998, -0.999998, 0.999998],
      [2.999988, -0.999996, -0.999996, -0.999996],
      [-0.624999, -0.0625, 0.687499],
    ],
  ],
];
const groups = [
  [1, 0, 0, 1],
  [1, 0, 0, 0],
  [0.2, 0.5, 0.9],
];

test.each(cases)("%s has its golden values", (_name, estimate, expected) => {
  for (const [index, rewards] of groups.entries()) {
    for (const [member, advantage] of estimate(rewards).entries()) {
      expect(Math.abs(advantage - (expected[index]?.[member] ?? Number.NaN))).toBeLessThan(1e-5);
    }
  }
});

test("a group without variance has no advantage, and neither has a group of one", () => {
  for (const [, estimate] of cases) {
    expect(estimate([1, 1, 1, 1]).map(Math.abs)).toEqual([0, 0, 0, 0]);
    expect(estimate([0.5]).map(Math.abs)).toEqual([0]);
  }
});

test("groups of two have the advantages that SkyRL's fixtures give", () => {
  expect([...centred([6, 3]), ...centred([9, 12])]).toEqual([1.5, -1.5, -1.5, 1.5]);
  expect([...rloo([6, 3]), ...rloo([9, 12])]).toEqual([3, -3, -3, 3]);
});

test("max_rl refuses a negative reward, which would turn its sign", () => {
  expect(() => maxRl(1e-6)([1, -1])).toThrow("The advantage max_rl got a reward of -1.");
});

import { expect, test } from "vitest";
import { CORRECTIONS } from "./corrections.ts";

const RATIOS = [0.5, 1.5, 3, 0.1];
const LOG_RATIOS = RATIOS.map(Math.log);

test.each([
  ["none", [1, 1, 1, 1]],
  ["token_truncate", [0.5, 1.5, 2, 0.1]],
  ["token_mask", [0.5, 1.5, 0, 0]],
] as const)("%s has its golden weights", (name, expected) => {
  const weights = CORRECTIONS[name](LOG_RATIOS, 2);
  for (const [s, weight] of weights.entries()) expect(weight).toBeCloseTo(expected[s] ?? NaN, 12);
});

test("a sequence mask keeps or drops all tokens by the product of their ratios", () => {
  // 0.5 * 1.5 * 3 = 2.25.
  const three = LOG_RATIOS.slice(0, 3);
  expect(CORRECTIONS.sequence_mask(three, 2)).toEqual([0, 0, 0]);
  for (const weight of CORRECTIONS.sequence_mask(three, 3)) expect(weight).toBeCloseTo(2.25, 12);
  // With the fourth it is 0.225, below 1/3.
  expect(CORRECTIONS.sequence_mask(LOG_RATIOS, 3)).toEqual([0, 0, 0, 0]);
  expect(CORRECTIONS.sequence_mask(LOG_RATIOS, 5)[3]).toBeCloseTo(0.225, 12);
});

test("where trainer and sampler agree every correction leaves every token as it is", () => {
  for (const correct of Object.values(CORRECTIONS)) expect(correct([0, 0, 0], 2)).toEqual([1, 1, 1]);
});

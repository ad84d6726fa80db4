import { expect, test } from "vitest";
import { SURROGATES } from "./surrogates.ts";
import type { RatioBounds } from "./surrogates.ts";

// Ratios 1.221403, 1.491825, 0.367879 and 1; their geometric mean is 0.904837.
const LOGPROBS = [-1, -0.5, -2, -0.1];
const SAMPLER = [-1.2, -0.9, -1, -0.1];
const BOUNDS = { clipLow: 0.8, clipHigh: 1.2 };
const DAPO = { clipLow: 0.8, clipHigh: 1.28 };
const GSPO = { clipLow: 1 - 3e-4, clipHigh: 1 + 4e-4 };

const tokensOf = (advantage: number, logprobs_S: readonly number[] = LOGPROBS) => ({
  logprobs_S,
  samplerLogprobs_S: SAMPLER,
  advantages_S: logprobs_S.map(() => advantage),
});

const cases: [keyof typeof SURROGATES, number, RatioBounds, number[]][] = [
  ["importance_sampling", 1, BOUNDS, [-1.221403, -1.491825, -0.367879, -1]],
  ["importance_sampling", -1, BOUNDS, [1.221403, 1.491825, 0.367879, 1]],
  ["ppo", 1, BOUNDS, [-1.2, -1.2, -0.367879, -1]],
  ["ppo", -1, BOUNDS, [1.221403, 1.491825, 0.8, 1]],
  ["ppo", 1, DAPO, [-1.221403, -1.28, -0.367879, -1]],
  ["ppo", -1, DAPO, [1.221403, 1.491825, 0.8, 1]],
  ["cispo", 1, BOUNDS, [1.2, 0.6, 1.6, 0.1]],
  ["cispo", -1, BOUNDS, [-1.2, -0.6, -1.6, -0.1]],
  ["gspo", 1, GSPO, [-0.904837, -0.904837, -0.904837, -0.904837]],
  ["gspo", -1, GSPO, [0.9997, 0.9997, 0.9997, 0.9997]],
];

test.each(cases)("%s with the advantage %d has its golden losses", (name, advantage, bounds, expected) => {
  const losses = SURROGATES[name](tokensOf(advantage), bounds).map(({ loss }) => loss);
  for (const [s, loss] of losses.entries()) expect(loss).toBeCloseTo(expected[s] ?? NaN, 6);
});

test.each([
  ["importance_sampling", -4.081107],
  ["ppo", -3.767879],
  ["cispo", 3.5],
] as const)("the sum of %s is golden, too", (name, expected) => {
  const losses = SURROGATES[name](tokensOf(1), BOUNDS).map(({ loss }) => loss);
  expect(losses.reduce((sum, loss) => sum + loss, 0)).toBeCloseTo(expected, 6);
});

test("derivatives are those of the summed loss, gspo's of the whole sequence", () => {
  const step = 1e-6;
  for (const name of ["importance_sampling", "ppo", "gspo"] as const) {
    for (const [advantage, bounds] of [
      [1, BOUNDS],
      [-1, BOUNDS],
      [-1, GSPO],
    ] as const) {
      const lossAt = (s: number, change: number): number =>
        SURROGATES[name](tokensOf(advantage, LOGPROBS.with(s, (LOGPROBS[s] ?? 0) + change)), bounds).reduce(
          (sum, { loss }) => sum + loss,
          0,
        );
      const found = SURROGATES[name](tokensOf(advantage), bounds).map(({ derivative }) => derivative);
      for (const s of LOGPROBS.keys()) {
        expect(found[s]).toBeCloseTo((lossAt(s, step) - lossAt(s, -step)) / (2 * step), 5);
      }
    }
  }
});

import { expect, test } from "vitest";
import { KL_ESTIMATORS } from "./kl.ts";

const POLICY = [-1, -0.5, -2];
const REFERENCE = [-1.5, -0.4, -1];
const DIFFERENCES = POLICY.map((logprob, t) => logprob - (REFERENCE[t] ?? 0));

test.each([
  ["k1", [0.5, -0.1, -1], -0.2],
  ["k2", [0.125, 0.005, 0.5], 0.21],
  ["k3", [0.106531, 0.005171, 0.718282], 0.276661],
] as const)("%s has its golden values and its golden mean", (name, expected, mean) => {
  const values = DIFFERENCES.map((difference) => KL_ESTIMATORS[name](difference).value);
  for (const [t, value] of values.entries()) expect(value).toBeCloseTo(expected[t] ?? NaN, 6);
  expect(values.reduce((sum, value) => sum + value, 0) / 3).toBeCloseTo(mean, 6);
});

test("derivatives agree with differences of the value", () => {
  const step = 1e-6;
  for (const estimate of Object.values(KL_ESTIMATORS)) {
    for (const difference of DIFFERENCES) {
      const slope = (estimate(difference + step).value - estimate(difference - step).value) / (2 * step);
      expect(estimate(difference).derivative).toBeCloseTo(slope, 6);
    }
  }
});

test("a token that the policy would never say has a finite value and a finite derivative", () => {
  const { value, derivative } = KL_ESTIMATORS.k3(-1000);
  expect(value).toBeCloseTo(Math.exp(20) - 1 - 1000, 6);
  expect(derivative).toBeCloseTo(1 - Math.exp(20), 6);
  expect(KL_ESTIMATORS.k3(0)).toEqual({ value: 0, derivative: 0 });
});

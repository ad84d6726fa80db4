import { expect, test } from "vitest";
import { trainingConfig } from "../../test/training-config.ts";
import { linearData, nativeLoss, objectiveOf } from "./objective.ts";
import type { Scores } from "./objective.ts";

const settings = (advanced: object = {}) => trainingConfig(advanced).advanced;

/** Two sampled tokens with the weight 0.5 behind a prompt of one; ratios 3 and 0.6 to the sampler. */
function scoresOf(changes: Partial<Scores> = {}): Scores {
  return {
    data_B: [
      {
        tokens_T: [5, 6, 7],
        weights_T: [0, 0.5, 0.5],
        advantages_T: [0, 1, 1],
        samplerLogprobs_T: [0, -1 - Math.log(3), -2 - Math.log(0.6)],
      },
    ],
    logprobs_B_T: [Float32Array.of(0, -1, -2)],
    ...changes,
  };
}

/** Minus the derivatives: what each token's log probability is multiplied with. */
function pulls(advanced: object, changes: Partial<Scores> = {}): number[] {
  const [sequence] = objectiveOf(scoresOf(changes), settings(advanced)).sequences_B;
  return (sequence?.derivatives_S ?? []).map((derivative) => -derivative);
}

function expectClose(found: readonly number[], expected: readonly number[]): void {
  expect(found).toHaveLength(expected.length);
  for (const [s, value] of expected.entries()) expect(found[s]).toBeCloseTo(value, 5);
}

test.each([
  [{}, { type: "cispo", clipLow: 0, clipHigh: 2 }],
  [
    { loss: "importance_sampling", correction_cap: 3 },
    { type: "cispo", clipLow: 0, clipHigh: 3 },
  ],
  [{ correction: "none" }, { type: "ppo", clipLow: 0.8, clipHigh: 1.28 }],
  [
    { correction: "none", loss: "cispo" },
    { type: "cispo", clipLow: 0.8, clipHigh: 1.28 },
  ],
  [{ correction: "none", loss: "importance_sampling" }, { type: "importance_sampling" }],
  [{ correction: "none", loss: "gspo" }, undefined],
  [{ correction: "token_mask" }, undefined],
  [{ correction: "sequence_mask" }, undefined],
  [{ kl_coef: 0.1 }, undefined],
  [{ entropy_coef: 0.1 }, undefined],
  [{ teacher_model: "large" }, undefined],
])("%o is one pass with %o", (advanced, loss) => {
  expect(nativeLoss(settings(advanced))).toEqual(loss);
});

test("with a correction every loss weighs its advantage, without one it has its own ratio", () => {
  for (const loss of ["importance_sampling", "ppo", "cispo"]) {
    expectClose(pulls({ loss }), [2, 0.6]);
    expectClose(pulls({ loss, correction: "token_mask" }), [0, 0.6]);
    // The product of 3 and 0.6.
    expectClose(pulls({ loss, correction: "sequence_mask" }), [1.8, 1.8]);
    expectClose(pulls({ loss, correction: "sequence_mask", correction_cap: 1.7 }), [0, 0]);
  }
  expectClose(pulls({ loss: "importance_sampling", correction: "none" }), [3, 0.6]);
  expectClose(pulls({ loss: "ppo", correction: "none" }), [0, 0.6]);
  expectClose(pulls({ loss: "cispo", correction: "none" }), [1.28, 0.8]);
});

test("gspo keeps its ratio to the sampler, and a correction only masks", () => {
  const ratio = Math.sqrt(1.8);
  const wide = { loss: "gspo", clip_high: 1 };
  for (const correction of ["none", "token_truncate"]) {
    expectClose(pulls({ ...wide, correction }), [ratio, ratio]);
  }
  expectClose(pulls({ ...wide, correction: "token_mask" }), [0, ratio]);
  // Beyond its own narrow bounds it is clipped whole.
  expectClose(pulls({ loss: "gspo" }), [0, 0]);
});

test("k3 pulls a token towards the reference, k1 is part of its advantage", () => {
  const reference = { reference_B_T: [Float32Array.of(0, -1.5, -1)] };
  const base = { correction: "none", loss: "importance_sampling" };
  expectClose(pulls({ ...base, kl_coef: 0.1 }, reference), [
    3 - 0.1 * (1 - Math.exp(-0.5)),
    0.6 - 0.1 * (1 - Math.exp(1)),
  ]);
  expectClose(pulls({ ...base, kl_coef: 0.1, kl_estimator: "k1" }, reference), [
    3 * (1 - 0.1 * 0.5),
    0.6 * (1 + 0.1 * 1),
  ]);
  const { loss, policyLoss } = objectiveOf(scoresOf(reference), settings({ kl_coef: 0.1 }));
  // The weight 0.5 and the corrections 2 and 0.6.
  expect(policyLoss).toBeCloseTo(-0.5 * (2 + 0.6), 5);
  expect(loss - policyLoss).toBeCloseTo(0.1 * 0.5 * (2 * 0.106531 + 0.6 * 0.718282), 5);
});

test("a teacher rewards each token for how much more probable it finds it", () => {
  const teacher = { teacher_B_T: [Float32Array.of(0, -0.25, -4)] };
  const base = { teacher_model: "large", correction: "none", loss: "importance_sampling" };
  expectClose(pulls(base, teacher), [3 * (1 + 0.75), 0.6 * (1 - 2)]);
  expectClose(pulls({ ...base, teacher_coef: 0.1 }, teacher), [3 * 1.075, 0.6 * 0.8]);
});

test("the entropy rewards tokens that are less probable than the mean", () => {
  const base = { entropy_coef: 0.1, correction: "none", loss: "importance_sampling" };
  expectClose(pulls(base), [3 * (1 - 0.05), 0.6 * (1 + 0.05)]);
});

test("the linear loss of the data has the objective's gradient", () => {
  const scores = scoresOf();
  const data_B = linearData(scores, objectiveOf(scores, settings({ correction: "token_mask" })));
  expect(data_B).toEqual([
    {
      tokens_T: [5, 6, 7],
      weights_T: [0, 0.5, 0.5],
      advantages_T: [0, 0, expect.closeTo(0.6, 5)],
      samplerLogprobs_T: [0, -1, -2],
    },
  ]);
});

import { expect, test } from "vitest";
import { trainingConfig } from "../../test/training-config.ts";
import { objectiveOf } from "./objective.ts";
import type { Scores } from "./objective.ts";
import { policyMetrics } from "./policy-metrics.ts";

type Tokens = {
  readonly trainer: number[];
  readonly sampler: number[];
  readonly advantage?: number;
  readonly reference?: number[];
  readonly teacher?: number[];
};

/** What an update says about sequences of tokens that were all sampled. */
function metricsOf(sequences: readonly Tokens[], advanced: object = {}) {
  const after = (values: readonly number[]) => Float32Array.from([0, ...values]);
  const { reference, teacher } = sequences[0] ?? {};
  const scores: Scores = {
    data_B: sequences.map(({ sampler, advantage = 1 }) => ({
      tokens_T: [5, ...sampler.map(() => 6)],
      weights_T: [0, ...sampler.map(() => 0.1)],
      advantages_T: [0, ...sampler.map(() => advantage)],
      samplerLogprobs_T: [0, ...sampler],
    })),
    logprobs_B_T: sequences.map(({ trainer }) => after(trainer)),
    ...(reference && { reference_B_T: [after(reference)] }),
    ...(teacher && { teacher_B_T: [after(teacher)] }),
  };
  const config = trainingConfig(advanced).advanced;
  return policyMetrics(scores, objectiveOf(scores, config), config);
}

test("the divergence of sampler and trainer has its golden values", () => {
  // Sampled with the first, compared with the second.
  const tokens = { sampler: [-1, -0.5, -2], trainer: [-1.5, -0.4, -1] };
  expect(metricsOf([tokens])).toMatchObject({
    "train/train_rollout_kl": expect.closeTo(0.276661, 6),
    "train/train_rollout_kl_k1": expect.closeTo(-0.2, 6),
    "train/train_rollout_logprob_abs_diff": expect.closeTo(1.6 / 3, 6),
    "train/train_rollout_logprob_abs_diff_max": expect.closeTo(1, 6),
    "train/ratio/max": expect.closeTo(Math.E, 6),
    "train/perplexity/sampler": expect.closeTo(Math.exp(3.5 / 3), 6),
    "train/perplexity/trainer": expect.closeTo(Math.exp(2.9 / 3), 6),
    "train/perplexity/ratio": expect.closeTo(Math.exp(-0.2), 6),
  });
});

test("the divergence to reference and teacher has its golden values", () => {
  const tokens = { sampler: [-1, -0.5, -2], trainer: [-1, -0.5, -2] };
  const other = [-1.5, -0.4, -1];
  expect(metricsOf([{ ...tokens, reference: other, teacher: other }])).toMatchObject({
    "train/reference_kl/k1": expect.closeTo(-0.2, 6),
    "train/reference_kl/k2": expect.closeTo(0.21, 6),
    "train/reference_kl/k3": expect.closeTo(0.276661, 6),
    "train/teacher_kl": expect.closeTo(-0.2, 6),
    "train/train_rollout_kl": 0,
  });
});

test("chi-square is that of tokens, and of the whole ratios of sequences", () => {
  const log = Math.log;
  const [first, second] = [[log(2), log(0.5)], [log(3)]].map((trainer) => ({
    trainer,
    sampler: trainer.map(() => 0),
  }));
  if (first === undefined || second === undefined) throw new Error("two sequences");
  expect(metricsOf([first, second])).toMatchObject({
    "train/ratio/mean": expect.closeTo(5.5 / 3, 5),
    "train/chi2/token": expect.closeTo((4 + 0.25 + 9) / 3 - 1, 5),
    "train/chi2/sequence": expect.closeTo((1 + 9) / 2 - 1, 5),
  });
});

// Ratios 1.22, 1.49, 0.37 and 1.
const FOUR = { trainer: [-1, -0.5, -2, -0.1], sampler: [-1.2, -0.9, -1, -0.1] };
const CLIP = { clip_low: 0.2, clip_high: 0.2 };

test.each([
  ["ppo", 1, { low: 0, high: 0.5 }],
  ["ppo", -1, { low: 0.25, high: 0 }],
  ["ppo", 0, { low: 0, high: 0 }],
  ["cispo", 1, { low: 0.25, high: 0.5 }],
  ["cispo", -1, { low: 0.25, high: 0.5 }],
  ["cispo", 0, { low: 0.25, high: 0.5 }],
  ["importance_sampling", 1, { low: 0, high: 0 }],
] as const)("the clip fraction of %s with the advantage %d is that of its loss", (loss, advantage, share) => {
  for (const correction of ["none", "token_truncate"]) {
    expect(metricsOf([{ ...FOUR, advantage }], { loss, correction, ...CLIP })).toMatchObject({
      "train/clip_fraction/low": share.low,
      "train/clip_fraction/high": share.high,
      "train/pg_clipfrac": share.low + share.high,
    });
  }
});

test("gspo clips a sequence whole", () => {
  // The geometric mean of the ratios is 0.905.
  expect(metricsOf([{ ...FOUR, advantage: 1 }], { loss: "gspo" })["train/pg_clipfrac"]).toBe(0);
  expect(metricsOf([{ ...FOUR, advantage: -1 }], { loss: "gspo" })["train/clip_fraction/low"]).toBe(1);
});

test.each([
  ["none", { weight: 1, masked: 0 }],
  ["token_truncate", { weight: (1.221403 + 1.4 + 0.367879 + 1) / 4, masked: 0 }],
  ["token_mask", { weight: (1.221403 + 1) / 4, masked: 0.5 }],
  ["sequence_mask", { weight: Math.exp(-0.4), masked: 0 }],
] as const)(
  "what %s does to the tokens is reported beside what there is to correct",
  (correction, expected) => {
    expect(
      metricsOf([FOUR], { correction, correction_cap: correction === "sequence_mask" ? 2 : 1.4 }),
    ).toMatchObject({
      "train/correction/weight": expect.closeTo(expected.weight, 5),
      "train/correction/masked": expected.masked,
      "train/correction/above_cap": correction === "sequence_mask" ? 0 : 0.25,
      "train/correction/below_cap": 0.25,
    });
  },
);

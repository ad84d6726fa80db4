import type { LossSpec } from "@osmosis/engine";
import type { RolloutOutcome } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { recordOf } from "../../test/records.ts";
import type { TrainingBatch } from "./batch.ts";
import { rolloutMetrics, updateMetrics, validationMetrics } from "./metrics.ts";

function rolloutOf(reward: number | null, outcome: RolloutOutcome) {
  return recordOf({ reward, outcome });
}

/** What an update says about one sequence of tokens that were all sampled. */
function updateOf(
  tokens: { readonly trainer: number[]; readonly sampler: number[]; readonly advantage: number },
  loss: LossSpec,
) {
  const { trainer, sampler, advantage } = tokens;
  const batch: TrainingBatch = {
    data_B: [
      {
        tokens_T: [5, ...trainer.map(() => 6)],
        weights_T: [0, ...trainer.map(() => 0.1)],
        advantages_T: [0, ...trainer.map(() => advantage)],
        samplerLogprobs_T: [0, ...sampler],
      },
    ],
    sampledTokens: trainer.length,
    groupsLeftOut: 0,
    rolloutsLeftOut: 0,
    rewardUsed: 0,
    overlongPenalty: 0,
  };
  const logprobs_B_T = [Float32Array.from([0, ...trainer])];
  return updateMetrics(batch, { loss: 0, entropy: 0, logprobs_B_T }, loss);
}

test("the divergence of sampler and trainer has k3's golden values, and its mask", () => {
  // Sampled with the first, compared with the second: k3 is 0.106531, 0.005171 and 0.718282.
  const tokens = { sampler: [-1, -0.5, -2], trainer: [-1.5, -0.4, -1], advantage: 1 };
  expect(updateOf(tokens, { type: "importance_sampling" })).toMatchObject({
    "train/train_rollout_kl": expect.closeTo(0.276661, 6),
    "train/train_rollout_logprob_abs_diff": expect.closeTo(1.6 / 3, 6),
    "train/train_rollout_logprob_abs_diff_max": expect.closeTo(1, 6),
    "train/pg_clipfrac": 0,
  });
});

test.each([
  ["ppo", 1, { low: 0, high: 0.5 }],
  ["ppo", -1, { low: 0.25, high: 0 }],
  ["ppo", 0, { low: 0, high: 0 }],
  ["cispo", 1, { low: 0.25, high: 0.5 }],
  ["cispo", -1, { low: 0.25, high: 0.5 }],
] as const)("the clip fraction of %s with the advantage %d is that of its loss", (type, advantage, share) => {
  // Ratios 1.22, 1.49, 0.37 and 1.
  const tokens = { trainer: [-1, -0.5, -2, -0.1], sampler: [-1.2, -0.9, -1, -0.1], advantage };
  const metrics = updateOf(tokens, { type, clipLow: 0.8, clipHigh: 1.2 });
  expect(metrics).toMatchObject({
    "train/clip_fraction/low": share.low,
    "train/clip_fraction/high": share.high,
    "train/pg_clipfrac": share.low + share.high,
  });
});

test("the n beside a pass rate is its denominator", () => {
  const rollouts = [
    rolloutOf(1, "ok"),
    rolloutOf(0, "truncated"),
    rolloutOf(null, "agent"),
    rolloutOf(null, "provider"),
    rolloutOf(null, "lost"),
  ];
  const group = { rollouts_G: rollouts, rewards_G: rollouts.map(({ reward }) => reward) };
  expect(rolloutMetrics([group], { weightsVersion: 0, temperature: 1 })).toMatchObject({
    "rollout/pass_rate": 1 / 3,
    "rollout/n": 3,
    "rollout/scored": 2,
    "rollout/raw_reward": 0.5,
    "rollout/reward_min": 0,
    "rollout/reward_max": 1,
  });
  expect(validationMetrics(rollouts, 0)).toMatchObject({
    "eval/validation/pass_rate": 1 / 3,
    "eval/validation/n": 3,
    "eval/validation/scored": 2,
  });
});

import type { RolloutRecord } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { recordOf, sequenceOf } from "../../test/records.ts";
import { centred } from "./advantages.ts";
import { batchOf } from "./batch.ts";
import type { Aggregation, Group, TrainingBatch } from "./batch.ts";

function groupOf(...rollouts: RolloutRecord[]): Group {
  return { rollouts_G: rollouts, rewards_G: rollouts.map(({ reward }) => reward) };
}

const rollout = (reward: number | null, ...sampled: number[]) =>
  recordOf({
    reward,
    outcome: reward === null ? "agent" : "ok",
    sequences: sampled.map((tokens) => sequenceOf(tokens)),
  });

function lossOf({ data_B }: TrainingBatch, tokenLoss: (sampledTokens: number) => number): number {
  return data_B
    .flatMap(({ weights_T }) => {
      const sampled = weights_T.filter((weight) => weight !== 0).length;
      return weights_T.map((weight) => weight * tokenLoss(sampled));
    })
    .reduce((sum, value) => sum + value, 0);
}

test.each<[Aggregation, number]>([
  ["token_mean", 2 / 3],
  ["sequence_mean", 0.75],
])("a summed loss is the %s", (aggregation, expected) => {
  // Two tokens with the loss 1 each, four with 0.5 each.
  const batch = batchOf([groupOf(rollout(1, 2), rollout(0, 4))], {
    advantage: centred,
    aggregation,
    maxResponseTokens: 8,
  });
  expect(lossOf(batch, (tokens) => (tokens === 2 ? 1 : 0.5))).toBeCloseTo(expected, 6);
});

test("the branches of a rollout share its weight and its advantage", () => {
  const { data_B } = batchOf([groupOf(rollout(1, 3, 1), rollout(0, 4))], {
    advantage: centred,
    aggregation: "sequence_mean",
    maxResponseTokens: 8,
  });
  expect(data_B.map(({ weights_T }) => weights_T)).toEqual([
    [0, 1 / 8, 1 / 8, 1 / 8],
    [0, 1 / 8],
    [0, 1 / 8, 1 / 8, 1 / 8, 1 / 8],
  ]);
  expect(data_B.map(({ advantages_T }) => advantages_T)).toEqual([
    [0, 0.5, 0.5, 0.5],
    [0, 0.5],
    [0, -0.5, -0.5, -0.5, -0.5],
  ]);
});

test("a datum is what was sampled: ids, mask and the sampler's log probabilities", () => {
  const { data_B } = batchOf([groupOf(rollout(1, 2), rollout(0, 2))], {
    advantage: centred,
    aggregation: "token_mean",
    maxResponseTokens: 8,
  });
  expect(data_B[0]).toEqual({
    tokens_T: [5, 10, 11],
    weights_T: [0, 0.25, 0.25],
    advantages_T: [0, 0.5, 0.5],
    samplerLogprobs_T: [0, -1, -1],
  });
});

test("groups without variance and rollouts without a reward are left out and counted", () => {
  const batch = batchOf(
    [
      groupOf(rollout(1, 2), rollout(1, 2)),
      groupOf(rollout(1, 2), rollout(null, 2), rollout(0, 2)),
      groupOf(rollout(null, 2), rollout(1, 2)),
      groupOf(rollout(1), rollout(0, 2)),
    ],
    { advantage: centred, aggregation: "token_mean", maxResponseTokens: 8 },
  );
  expect(batch).toMatchObject({ groupsLeftOut: 3, rolloutsLeftOut: 3, sampledTokens: 4 });
  // Twelve sampled tokens have a reward, so that leaving groups out changes no weight.
  expect(batch.data_B.map(({ weights_T }) => weights_T)).toEqual([
    [0, 1 / 12, 1 / 12],
    [0, 1 / 12, 1 / 12],
  ]);
});

test("a sequence without a sampled token is no datum", () => {
  const bare = { tokens: [1, 2], mask: [0, 0] as (0 | 1)[], logprobs: [0, 0] };
  const one = recordOf({ reward: 1, sequences: [sequenceOf(1), bare] });
  const { data_B } = batchOf([groupOf(one, rollout(0, 1))], {
    advantage: centred,
    aggregation: "token_mean",
    maxResponseTokens: 8,
  });
  expect(data_B).toHaveLength(2);
});

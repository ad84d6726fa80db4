import type { RolloutRecord } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { recordOf, sequenceOf } from "../../test/records.ts";
import { trainingConfig } from "../../test/training-config.ts";
import { batchOf } from "./batch.ts";
import type { Group, TrainingBatch } from "./batch.ts";

function groupOf(...rollouts: RolloutRecord[]): Group {
  return { rollouts_G: rollouts, rewards_G: rollouts.map(({ reward }) => reward) };
}

const configOf = (advanced: object = {}) => trainingConfig(advanced, { max_response_length: 8 });

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

test.each([
  ["token_mean", 2 / 3],
  ["sequence_mean", 0.75],
  ["dr_grpo", 0.25],
] as const)("a summed loss is the %s", (aggregation, expected) => {
  // Two tokens with the loss 1 each, four with 0.5 each.
  const batch = batchOf([groupOf(rollout(1, 2), rollout(0, 4))], configOf({ aggregation }));
  expect(lossOf(batch, (tokens) => (tokens === 2 ? 1 : 0.5))).toBeCloseTo(expected, 6);
});

test("the branches of a rollout share its weight and its advantage", () => {
  const { data_B } = batchOf(
    [groupOf(rollout(1, 3, 1), rollout(0, 4))],
    configOf({ aggregation: "sequence_mean" }),
  );
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
  const { data_B } = batchOf([groupOf(rollout(1, 2), rollout(0, 2))], configOf());
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
    configOf(),
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
  const { data_B } = batchOf([groupOf(one, rollout(0, 1))], configOf());
  expect(data_B).toHaveLength(2);
});

test("where tokens teach, groups without variance and groups of one stay in", () => {
  const groups_P = [groupOf(rollout(1, 2), rollout(1, 2)), groupOf(rollout(0, 2), rollout(null, 2))];
  for (const term of [{ kl_coef: 0.1 }, { entropy_coef: 0.1 }, { teacher_model: "large" }]) {
    const batch = batchOf(groups_P, configOf(term));
    expect(batch).toMatchObject({ groupsLeftOut: 0, rolloutsLeftOut: 1, sampledTokens: 6 });
    expect(batch.data_B.flatMap(({ advantages_T }) => advantages_T).every((value) => value === 0)).toBe(true);
  }
  expect(batchOf(groups_P, configOf({ teacher_coef: 0, teacher_model: "large" })).data_B).toEqual([]);
});

test("the coefficient of the rewards scales their advantages", () => {
  const { data_B } = batchOf([groupOf(rollout(1, 1), rollout(0, 1))], configOf({ reward_coef: 0.5 }));
  expect(data_B.map(({ advantages_T }) => advantages_T)).toEqual([
    [0, 0.25],
    [0, -0.25],
  ]);
});

test("an answer near its limit is trained with less than its reward, and the mean of both is there", () => {
  const long = (completion_tokens: number) => recordOf({ reward: 1, completion_tokens });
  const batch = batchOf([groupOf(long(2), long(7))], configOf({ overlong_cache: 4 }));
  expect(batch).toMatchObject({ rewardUsed: 1 - 0.75 / 2, overlongPenalty: -0.75 / 2, groupsLeftOut: 0 });
  expect(batch.data_B.map(({ advantages_T }) => advantages_T[1])).toEqual([0.375, -0.375]);
  expect(batchOf([groupOf(long(2), long(7))], configOf())).toMatchObject({ rewardUsed: 1, groupsLeftOut: 1 });
});

import type { Datum } from "@osmosis/engine";
import type { RolloutRecord } from "@osmosis/protocol";
import type { AdvantageEstimator } from "./advantages.ts";

/** A step's rollouts by prompt, with the reward that each is trained with; null where it has none. */
export type Group = {
  readonly rollouts_G: readonly RolloutRecord[];
  readonly rewards_G: readonly (number | null)[];
};

/**
 * How the loss of the tokens becomes one number. `token_mean`: every sampled token of the step counts the same.
 * `sequence_mean`: every rollout counts the same. `dr_grpo`: every token counts the same in every step, 1 over the
 * rollouts and their longest possible answer (arXiv 2503.20783).
 */
export type Aggregation = "token_mean" | "sequence_mean" | "dr_grpo";

export type TrainingBatch = {
  readonly data_B: readonly Datum[];
  /** Sampled tokens among them. */
  readonly sampledTokens: number;
  /** Groups that teach nothing, because all their rewards are the same or fewer than two of them have one. */
  readonly groupsLeftOut: number;
  /** Rollouts without a reward or without a sampled token. */
  readonly rolloutsLeftOut: number;
};

/**
 * What the trainer gets: one datum for each branch of each rollout that can teach something, in the order of the groups.
 *
 * The weights are such that the plain sum of weighted token losses is the configured aggregation over all rewarded
 * rollouts of the step. Groups whose advantages are all 0 count in it although they are left out, so that leaving them
 * out saves time and changes nothing else.
 */
export function batchOf(
  groups_P: readonly Group[],
  options: {
    readonly advantage: AdvantageEstimator;
    readonly aggregation: Aggregation;
    /** Tokens that a rollout may sample; the constant of `dr_grpo`. */
    readonly maxResponseTokens: number;
  },
): TrainingBatch {
  const rewarded_P = groups_P.map(rewardedOf);
  const rewarded = rewarded_P.flat();
  const totalTokens = sum(rewarded.map(({ tokens }) => tokens));
  const weightOf = {
    token_mean: () => 1 / totalTokens,
    sequence_mean: (tokens: number) => 1 / (rewarded.length * tokens),
    dr_grpo: () => 1 / (rewarded.length * options.maxResponseTokens),
  }[options.aggregation];

  const teaching_P = rewarded_P.filter((group) => new Set(group.map(({ reward }) => reward)).size > 1);
  const data_B = teaching_P.flatMap((group) => {
    const advantages_G = options.advantage(group.map(({ reward }) => reward));
    return group.flatMap(({ rollout, tokens }, index) =>
      rollout.sequences
        .filter(({ mask }) => mask.includes(1))
        .map((sequence): Datum => {
          const weight = weightOf(tokens);
          const advantage = advantages_G[index] ?? 0;
          return {
            tokens_T: sequence.tokens,
            weights_T: sequence.mask.map((sampled) => (sampled === 1 ? weight : 0)),
            advantages_T: sequence.mask.map((sampled) => (sampled === 1 ? advantage : 0)),
            samplerLogprobs_T: sequence.logprobs,
          };
        }),
    );
  });
  return {
    data_B,
    sampledTokens: sum(teaching_P.flat().map(({ tokens }) => tokens)),
    groupsLeftOut: groups_P.length - teaching_P.length,
    rolloutsLeftOut: sum(groups_P.map(({ rollouts_G }) => rollouts_G.length)) - rewarded.length,
  };
}

type Rewarded = { readonly rollout: RolloutRecord; readonly reward: number; readonly tokens: number };

function rewardedOf({ rollouts_G, rewards_G }: Group): Rewarded[] {
  return rollouts_G.flatMap((rollout, index) => {
    const reward = rewards_G[index] ?? null;
    const tokens = sum(rollout.sequences.map(({ mask }) => sum(mask)));
    return reward === null || tokens === 0 ? [] : [{ rollout, reward, tokens }];
  });
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

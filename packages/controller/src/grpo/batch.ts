import type { Datum } from "@osmosis/engine";
import type { RolloutRecord, TrainingRunConfig } from "@osmosis/protocol";
import { ADVANTAGES } from "./advantages.ts";
import { softOverlong } from "./soft-overlong.ts";

/** A step's rollouts by prompt, with the reward that each is trained with; null where it has none. */
export type Group = {
  readonly rollouts_G: readonly RolloutRecord[];
  readonly rewards_G: readonly (number | null)[];
};

/** The settings that decide what a step's groups teach. */
export type BatchConfig = {
  readonly training: Pick<TrainingRunConfig["training"], "max_response_length">;
  readonly advanced: Pick<TrainingRunConfig["advanced"], "advantage" | "aggregation" | "overlong_cache"> &
    TokenTermConfig;
};

export type TokenTermConfig = Pick<
  TrainingRunConfig["advanced"],
  "reward_coef" | "kl_coef" | "teacher_model" | "teacher_coef" | "entropy_coef"
>;

export type TrainingBatch = {
  /** `advantages_T` are those of the rewards, times `reward_coef`. */
  readonly data_B: readonly Datum[];
  /** Sampled tokens among them. */
  readonly sampledTokens: number;
  /** Groups that teach nothing, because all their rewards are the same or fewer than two of them have one. */
  readonly groupsLeftOut: number;
  /** Rollouts without a reward or without a sampled token. */
  readonly rolloutsLeftOut: number;
  /** Mean reward that the rewarded rollouts are trained with, and the mean penalty in it; NaN without any. */
  readonly rewardUsed: number;
  readonly overlongPenalty: number;
};

/**
 * What the trainer gets: one datum for each branch of each rollout that can teach something, in the order of the groups.
 *
 * The weights are such that the plain sum of weighted token losses is the configured aggregation over all rewarded
 * rollouts of the given groups. `token_mean`: every sampled token of them counts the same (DAPO, arXiv 2503.14476).
 * `sequence_mean`: every rollout counts the same (GRPO, arXiv 2402.03300). `dr_grpo`: every token counts the same in
 * every step, 1 over the rollouts and their longest possible answer (arXiv 2503.20783).
 *
 * Given groups whose advantages are all 0 count in it although they are left out, so that leaving them out saves time and
 * changes nothing else. They stay in where single tokens teach something, whatever the rewards are. Groups that dynamic
 * sampling has replaced are not given, and do not count.
 */
export function batchOf(groups_P: readonly Group[], { training, advanced }: BatchConfig): TrainingBatch {
  const limit = training.max_response_length;
  const rewarded_P = groups_P.map((group) => rewardedOf(group, { limit, cache: advanced.overlong_cache }));
  const rewarded = rewarded_P.flat();
  const totalTokens = sum(rewarded.map(({ tokens }) => tokens));
  const weightOf = {
    token_mean: () => 1 / totalTokens,
    sequence_mean: (tokens: number) => 1 / (rewarded.length * tokens),
    dr_grpo: () => 1 / (rewarded.length * limit),
  }[advanced.aggregation];
  const everyGroupTeaches = tokensTeach(advanced);
  const teaching_P = rewarded_P.filter(
    (group) => group.length > 0 && (everyGroupTeaches || new Set(group.map(({ reward }) => reward)).size > 1),
  );
  const data_B = teaching_P.flatMap((group) => {
    const advantages_G = ADVANTAGES[advanced.advantage](group.map(({ reward }) => reward));
    return group.flatMap(({ rollout, tokens }, index) =>
      rollout.sequences
        .filter(({ mask }) => mask.includes(1))
        .map((sequence): Datum => {
          const weight = weightOf(tokens);
          const advantage = advanced.reward_coef * (advantages_G[index] ?? 0);
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
    rewardUsed: sum(rewarded.map(({ reward }) => reward)) / rewarded.length,
    overlongPenalty: sum(rewarded.map(({ penalty }) => penalty)) / rewarded.length,
  };
}

/** Whether a token teaches something whatever its rollout's reward: a teacher, a reference or the entropy does. */
export function tokensTeach({
  kl_coef,
  teacher_model,
  teacher_coef,
  entropy_coef,
}: Omit<TokenTermConfig, "reward_coef">): boolean {
  return kl_coef > 0 || entropy_coef > 0 || (teacher_model !== undefined && teacher_coef > 0);
}

type Rewarded = {
  readonly rollout: RolloutRecord;
  /** With the penalty. */
  readonly reward: number;
  readonly penalty: number;
  readonly tokens: number;
};

function rewardedOf(
  { rollouts_G, rewards_G }: Group,
  overlong: { readonly limit: number; readonly cache: number },
): Rewarded[] {
  return rollouts_G.flatMap((rollout, index) => {
    const reward = rewards_G[index] ?? null;
    const tokens = sum(rollout.sequences.map(({ mask }) => sum(mask)));
    if (reward === null || tokens === 0) return [];
    const penalty = softOverlong(rollout.completion_tokens, overlong);
    return [{ rollout, reward: reward + penalty, penalty, tokens }];
  });
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

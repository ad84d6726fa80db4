import { tokenLoss } from "@osmosis/engine";
import type { LossSpec, TokenLoss } from "@osmosis/engine";

/** The sampled tokens of one sequence. */
export type SampledTokens = {
  readonly logprobs_S: readonly number[];
  readonly samplerLogprobs_S: readonly number[];
  readonly advantages_S: readonly number[];
};

/** Absolute bounds of the ratio to the sampler. */
export type RatioBounds = { readonly clipLow: number; readonly clipHigh: number };

/** The loss of each token of a sequence, and its derivative with respect to the token's log probability. */
export type Surrogate = (tokens: SampledTokens, bounds: RatioBounds) => TokenLoss[];

/** The policy losses by their names in `[advanced].loss`; all but gspo look at each token alone. */
export const SURROGATES = {
  importance_sampling: (tokens) => eachToken(tokens, { type: "importance_sampling" }),
  ppo: (tokens, bounds) => eachToken(tokens, { type: "ppo", ...bounds }),
  cispo: (tokens, bounds) => eachToken(tokens, { type: "cispo", ...bounds }),

  /**
   * PPO with one ratio for the whole sequence, e to the mean of its tokens' log ratios (GSPO, arXiv 2507.18071; where
   * tokens have advantages of their own, GSPO-token of its section 4.3). The derivative of that mean with respect to a
   * token is 1 over the length, and the loss counts once for each token, so that the two cancel.
   */
  gspo: ({ logprobs_S, samplerLogprobs_S, advantages_S }, bounds) => {
    const total = logprobs_S.reduce((sum, logprob, s) => sum + logprob - (samplerLogprobs_S[s] ?? 0), 0);
    const mean = { logprob: total / logprobs_S.length, samplerLogprob: 0 };
    return advantages_S.map((advantage) => tokenLoss({ type: "ppo", ...bounds }, { ...mean, advantage }));
  },
} as const satisfies Record<string, Surrogate>;

function eachToken(
  { logprobs_S, samplerLogprobs_S, advantages_S }: SampledTokens,
  spec: LossSpec,
): TokenLoss[] {
  return logprobs_S.map((logprob, s) =>
    tokenLoss(spec, {
      logprob,
      samplerLogprob: samplerLogprobs_S[s] ?? 0,
      advantage: advantages_S[s] ?? 0,
    }),
  );
}

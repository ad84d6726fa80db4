/**
 * What an update minimises, in plain JavaScript: the definition of every algorithm that `[advanced]` can be set to. It
 * needs nothing of a trainer but log probabilities, so that it is the same on each of them; `docs/algorithms.md` has the
 * formulas.
 */
import type { Datum, LossSpec } from "@osmosis/engine";
import type { TrainingRunConfig } from "@osmosis/protocol";
import { tokensTeach } from "./batch.ts";
import type { TokenTermConfig } from "./batch.ts";
import { CORRECTIONS } from "./corrections.ts";
import { KL_ESTIMATORS } from "./kl.ts";
import { SURROGATES } from "./surrogates.ts";
import type { RatioBounds } from "./surrogates.ts";

export type ObjectiveConfig = TokenTermConfig &
  Pick<
    TrainingRunConfig["advanced"],
    "loss" | "clip_low" | "clip_high" | "correction" | "correction_cap" | "kl_estimator"
  >;

/** Log probabilities of a batch before the update. Arrays have the lengths of the tokens. */
export type Scores = {
  readonly data_B: readonly Datum[];
  readonly logprobs_B_T: readonly Float32Array[];
  /** Under the model that training began with; needed where `kl_coef` is not 0. */
  readonly reference_B_T?: readonly Float32Array[];
  /** Under the teacher; needed where there is one. Undefined for a sequence that is too long for it. */
  readonly teacher_B_T?: readonly (Float32Array | undefined)[];
};

export type Objective = {
  /** Sum over all tokens, each with its weight: `policyLoss` and the divergence to the reference, where it is a loss. */
  readonly loss: number;
  readonly policyLoss: number;
  readonly sequences_B: readonly SequenceObjective[];
};

/** The S sampled tokens of one sequence. */
export type SequenceObjective = {
  /** Where they are in the sequence. */
  readonly positions_S: readonly number[];
  /** Trainer's log probability minus sampler's. */
  readonly logRatios_S: readonly number[];
  /** Of the rewards, the teacher, the reference and the entropy together. */
  readonly advantages_S: readonly number[];
  readonly corrections_S: readonly number[];
  /** Derivatives of the loss with respect to the tokens' log probabilities, before their weights. */
  readonly derivatives_S: readonly number[];
};

/** The objective at the weights that `scores` were computed with. */
export function objectiveOf(scores: Scores, config: ObjectiveConfig): Objective {
  const meanLogprob = config.entropy_coef > 0 ? meanLogprobOf(scores) : 0;
  let [policyLoss, klLoss] = [0, 0];
  const sequences_B = scores.data_B.map((datum, b) => {
    const tokens = tokensOf(scores, b);
    const { positions_S, logprobs_S, samplerLogprobs_S, reference_S } = tokens;
    const logRatios_S = logprobs_S.map((logprob, s) => logprob - (samplerLogprobs_S[s] ?? 0));
    const advantages_S = advantagesOf(tokens, config, meanLogprob);
    const corrections_S = correctionsOf(logRatios_S, config);
    const losses_S = SURROGATES[config.loss](
      {
        logprobs_S,
        samplerLogprobs_S: comparesWithSampler(config) ? samplerLogprobs_S : logprobs_S,
        advantages_S,
      },
      boundsOf(config),
    );
    const derivatives_S = losses_S.map(({ loss, derivative }, s) => {
      const [weight, correction] = [datum.weights_T[positions_S[s] ?? 0] ?? 0, corrections_S[s] ?? 0];
      policyLoss += weight * correction * loss;
      if (config.kl_coef === 0 || config.kl_estimator === "k1") return correction * derivative;
      const kl = KL_ESTIMATORS[config.kl_estimator]((logprobs_S[s] ?? 0) - (reference_S[s] ?? 0));
      klLoss += weight * correction * config.kl_coef * kl.value;
      return correction * (derivative + config.kl_coef * kl.derivative);
    });
    return { positions_S, logRatios_S, advantages_S, corrections_S, derivatives_S };
  });
  return { loss: policyLoss + klLoss, policyLoss, sequences_B };
}

/**
 * The loss of a trainer whose gradient is the objective's, so that one pass is enough; undefined where there is none.
 *
 * With `token_truncate` the ratio of the loss is that to the trainer before the update. A batch makes one update, so it
 * is 1 in every loss, nothing is clipped, and what is left is the advantage times the truncated ratio to the sampler:
 * cispo between 0 and the cap.
 */
export function nativeLoss(config: ObjectiveConfig): LossSpec | undefined {
  const { loss, correction, correction_cap } = config;
  if (loss === "gspo" || tokensTeach(config)) return undefined;
  if (correction === "token_truncate") return { type: "cispo", clipLow: 0, clipHigh: correction_cap };
  if (correction !== "none") return undefined;
  return loss === "importance_sampling" ? { type: loss } : { type: loss, ...boundsOf(config) };
}

/**
 * Data whose loss `importance_sampling` has the objective's gradient: measured against the trainer itself the ratio is
 * 1, and the advantage is what the log probability is multiplied with.
 */
export function linearData({ data_B, logprobs_B_T }: Scores, { sequences_B }: Objective): Datum[] {
  return data_B.map((datum, b) => {
    const advantages_T = datum.tokens_T.map(() => 0);
    const { positions_S = [], derivatives_S = [] } = sequences_B[b] ?? {};
    for (const [s, position] of positions_S.entries()) advantages_T[position] = -(derivatives_S[s] ?? 0);
    return { ...datum, advantages_T, samplerLogprobs_T: [...(logprobs_B_T[b] ?? [])] };
  });
}

/** Absolute bounds of the ratio. */
export function boundsOf({
  clip_low,
  clip_high,
}: Pick<ObjectiveConfig, "clip_low" | "clip_high">): RatioBounds {
  return { clipLow: 1 - clip_low, clipHigh: 1 + clip_high };
}

/** Without a correction the ratio of the loss is what corrects; gspo's ratio always does. */
function comparesWithSampler({ loss, correction }: ObjectiveConfig): boolean {
  return correction === "none" || loss === "gspo";
}

/** Where the ratio of the loss corrects already, a correction only masks. */
function correctionsOf(logRatios_S: readonly number[], config: ObjectiveConfig): number[] {
  const weights_S = CORRECTIONS[config.correction](logRatios_S, config.correction_cap);
  return comparesWithSampler(config) ? weights_S.map((weight) => (weight === 0 ? 0 : 1)) : weights_S;
}

type Tokens = {
  readonly positions_S: readonly number[];
  readonly logprobs_S: readonly number[];
  readonly samplerLogprobs_S: readonly number[];
  readonly rewardAdvantages_S: readonly number[];
  /** Empty where nobody was asked, or could answer. */
  readonly reference_S: readonly number[];
  readonly teacher_S: readonly number[];
};

function tokensOf({ data_B, logprobs_B_T, reference_B_T, teacher_B_T }: Scores, b: number): Tokens {
  const { weights_T = [], samplerLogprobs_T = [], advantages_T = [] } = data_B[b] ?? {};
  const positions_S = weights_T.flatMap((weight, t) => (t > 0 && weight !== 0 ? [t] : []));
  const pick = (values_T: ArrayLike<number> | undefined): number[] =>
    values_T === undefined ? [] : positions_S.map((t) => values_T[t] ?? 0);
  return {
    positions_S,
    logprobs_S: pick(logprobs_B_T[b]),
    samplerLogprobs_S: pick(samplerLogprobs_T),
    rewardAdvantages_S: pick(advantages_T),
    reference_S: pick(reference_B_T?.[b]),
    teacher_S: pick(teacher_B_T?.[b]),
  };
}

/**
 * What is better about a token than expected, in four parts: its rollout's reward; how much more probable the teacher
 * finds it than the policy (on-policy distillation, https://thinkingmachines.ai/blog/on-policy-distillation); minus the
 * divergence to the reference, where k1 estimates it; and how much less probable it is than the mean, which is the
 * gradient of the entropy, estimated from what was sampled.
 */
function advantagesOf(
  { logprobs_S, rewardAdvantages_S, reference_S, teacher_S }: Tokens,
  config: ObjectiveConfig,
  meanLogprob: number,
): number[] {
  const { kl_coef, kl_estimator, teacher_model, teacher_coef, entropy_coef } = config;
  return logprobs_S.map((logprob, s) => {
    let advantage = rewardAdvantages_S[s] ?? 0;
    const teacher = teacher_S[s];
    if (teacher_model !== undefined && teacher !== undefined) advantage += teacher_coef * (teacher - logprob);
    if (kl_estimator === "k1") advantage -= kl_coef * (logprob - (reference_S[s] ?? 0));
    return advantage - entropy_coef * (logprob - meanLogprob);
  });
}

/** Mean log probability of the sampled tokens, each with its weight. */
function meanLogprobOf({ data_B, logprobs_B_T }: Scores): number {
  let [sum, total] = [0, 0];
  for (const [b, { weights_T }] of data_B.entries()) {
    for (const [t, weight] of weights_T.entries()) {
      if (t === 0) continue;
      sum += weight * (logprobs_B_T[b]?.[t] ?? 0);
      total += weight;
    }
  }
  return sum / total;
}

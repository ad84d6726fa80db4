import type { Metrics } from "./metrics.ts";
import { KL_ESTIMATORS } from "./kl.ts";
import { boundsOf } from "./objective.ts";
import type { Objective, ObjectiveConfig, Scores, SequenceObjective } from "./objective.ts";

/** How far the policy is from the sampler, the reference and the teacher before an update, and what that does to it. */
export function policyMetrics(scores: Scores, objective: Objective, config: ObjectiveConfig): Metrics {
  return {
    ...samplerMetrics(scores, objective.sequences_B),
    ...correctionMetrics(objective.sequences_B, config),
    ...clipMetrics(objective.sequences_B, config),
    ...referenceMetrics(scores, objective.sequences_B),
    ...teacherMetrics(scores, objective.sequences_B),
  };
}

/**
 * Over the sampled tokens, with d = trainer's log probability minus sampler's: how far the two are apart, by several
 * measures, because each hides what another one shows. Of few tokens that are far apart the largest ones speak, of many
 * that are a little apart the perplexities, of long sequences the chi-square of their whole ratio.
 */
function samplerMetrics(
  { data_B, logprobs_B_T }: Scores,
  sequences_B: readonly SequenceObjective[],
): Metrics {
  const d = sequences_B.flatMap(({ logRatios_S }) => logRatios_S);
  const ratios = d.map(Math.exp);
  const sampler = mean(
    sequences_B.flatMap(({ positions_S }, b) => positions_S.map((t) => data_B[b]?.samplerLogprobs_T[t] ?? 0)),
  );
  const trainer = mean(
    sequences_B.flatMap(({ positions_S }, b) => positions_S.map((t) => logprobs_B_T[b]?.[t] ?? 0)),
  );
  return {
    "train/train_rollout_kl": mean(d.map((value) => KL_ESTIMATORS.k3(-value).value)),
    "train/train_rollout_kl_k1": mean(d.map((value) => KL_ESTIMATORS.k1(-value).value)),
    "train/train_rollout_logprob_abs_diff": mean(d.map(Math.abs)),
    "train/train_rollout_logprob_abs_diff_max": largest(d.map(Math.abs)),
    "train/ratio/mean": mean(ratios),
    "train/ratio/max": largest(ratios),
    "train/chi2/token": mean(ratios.map((ratio) => ratio ** 2)) - 1,
    "train/chi2/sequence": mean(sequences_B.map(({ logRatios_S }) => Math.exp(2 * sum(logRatios_S)))) - 1,
    "train/perplexity/trainer": Math.exp(-trainer),
    "train/perplexity/sampler": Math.exp(-sampler),
    "train/perplexity/ratio": Math.exp(sampler - trainer),
  };
}

function correctionMetrics(
  sequences_B: readonly SequenceObjective[],
  { correction_cap: cap }: ObjectiveConfig,
): Metrics {
  const tokens = sequences_B.flatMap(({ logRatios_S, corrections_S }) =>
    logRatios_S.map((logRatio, s) => ({ ratio: Math.exp(logRatio), weight: corrections_S[s] ?? 0 })),
  );
  const share = (test: (token: (typeof tokens)[number]) => boolean): number =>
    mean(tokens.map((token) => (test(token) ? 1 : 0)));
  return {
    "train/correction/weight": mean(tokens.map(({ weight }) => weight)),
    "train/correction/above_cap": share(({ ratio }) => ratio > cap),
    "train/correction/below_cap": share(({ ratio }) => ratio < 1 / cap),
    "train/correction/masked": share(({ weight }) => weight === 0),
  };
}

/** The share of tokens whose ratio to the sampler is beyond the bounds of the loss. */
function clipMetrics(sequences_B: readonly SequenceObjective[], config: ObjectiveConfig): Metrics {
  const { clipLow, clipHigh } = boundsOf(config);
  const isFree = config.loss === "importance_sampling";
  const isOneSided = config.loss !== "cispo";
  let [tokens, low, high] = [0, 0, 0];
  for (const { logRatios_S, advantages_S } of sequences_B) {
    tokens += logRatios_S.length;
    const ofSequence = Math.exp(sum(logRatios_S) / logRatios_S.length);
    for (const [s, logRatio] of logRatios_S.entries()) {
      const advantage = advantages_S[s] ?? 0;
      if (isFree) continue;
      const ratio = config.loss === "gspo" ? ofSequence : Math.exp(logRatio);
      // PPO clips only where it would go on in the direction that it went too far in; CISPO clips the ratio itself.
      if (ratio < clipLow && (!isOneSided || advantage < 0)) low += 1;
      if (ratio > clipHigh && (!isOneSided || advantage > 0)) high += 1;
    }
  }
  return {
    "train/pg_clipfrac": (low + high) / tokens,
    "train/clip_fraction/low": low / tokens,
    "train/clip_fraction/high": high / tokens,
  };
}

function referenceMetrics(scores: Scores, sequences_B: readonly SequenceObjective[]): Metrics {
  if (scores.reference_B_T === undefined) return {};
  const differences = differencesTo(scores.reference_B_T, scores, sequences_B);
  const estimate = (name: keyof typeof KL_ESTIMATORS): number =>
    mean(differences.map((difference) => KL_ESTIMATORS[name](difference).value));
  return {
    "train/reference_kl/k1": estimate("k1"),
    "train/reference_kl/k2": estimate("k2"),
    "train/reference_kl/k3": estimate("k3"),
  };
}

function teacherMetrics(scores: Scores, sequences_B: readonly SequenceObjective[]): Metrics {
  if (scores.teacher_B_T === undefined) return {};
  const differences = differencesTo(scores.teacher_B_T, scores, sequences_B);
  return {
    // Of nothing there is no mean.
    ...(differences.length > 0 && { "train/teacher_kl": mean(differences) }),
    "train/teacher_left_out": scores.teacher_B_T.filter((row) => row === undefined).length,
  };
}

/** The policy's log probabilities minus another model's, at the sampled tokens. */
function differencesTo(
  other_B_T: readonly (Float32Array | undefined)[],
  { logprobs_B_T }: Scores,
  sequences_B: readonly SequenceObjective[],
): number[] {
  return sequences_B.flatMap(({ positions_S }, b) =>
    other_B_T[b] === undefined
      ? []
      : positions_S.map((t) => (logprobs_B_T[b]?.[t] ?? 0) - (other_B_T[b]?.[t] ?? 0)),
  );
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** A call with a step's tokens as arguments would exceed the engine's limit. */
function largest(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), -Infinity);
}

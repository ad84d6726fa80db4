/**
 * What the tokens of a sequence weigh, by the logarithms of their ratios: how probable the trainer finds a token before
 * the update, divided by how probable the sampler found it. The two differ where weights are older, and where kernels or
 * precision are not the same. A weight of 0 leaves the token out.
 */
export type Correction = (logRatios_S: readonly number[], cap: number) => number[];

/** The corrections by their names in `[advanced].correction`. */
export const CORRECTIONS = {
  none: (logRatios_S) => logRatios_S.map(() => 1),

  /** The ratio, at most the cap (truncated importance sampling, https://fengyao.notion.site/off-policy-rl). */
  token_truncate: (logRatios_S, cap) => logRatios_S.map((logRatio) => Math.min(Math.exp(logRatio), cap)),

  /** The ratio; 0 where it is outside of 1/cap to cap (IcePop, arXiv 2510.18855). */
  token_mask: (logRatios_S, cap) => logRatios_S.map((logRatio) => masked(Math.exp(logRatio), cap)),

  /**
   * The ratio of the whole sequence, which is the product of those of its tokens, on each of them; 0 on all of them
   * where it is outside of 1/cap to cap (masked importance sampling at the level of sequences, as TRL does it; there
   * the cap is 3, and only an upper one). The product grows with the length, so that long sequences need a higher cap.
   */
  sequence_mask: (logRatios_S, cap) => {
    const weight = masked(Math.exp(logRatios_S.reduce((sum, logRatio) => sum + logRatio, 0)), cap);
    return logRatios_S.map(() => weight);
  },
} as const satisfies Record<string, Correction>;

function masked(ratio: number, cap: number): number {
  return ratio >= 1 / cap && ratio <= cap ? ratio : 0;
}

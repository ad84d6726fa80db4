/** What one token says about a divergence, and how that changes with the policy's log probability of the token. */
export type KlEstimate = { readonly value: number; readonly derivative: number };

/** Beyond it e^d says nothing that a gradient could use, and would soon be infinite. */
const LARGEST_EXPONENT = 20;

/**
 * Estimators of the divergence KL(policy || other) from single tokens that the policy sampled, by the difference of the
 * log probabilities, policy minus other (http://joschu.net/blog/kl-approx.html).
 *
 * `k1` is unbiased and noisy; its derivative is the same for every token, so that as a loss it teaches nothing, and it
 * belongs into the advantage. `k2` and `k3` are never negative; the derivative of `k3` is what its use as a loss has
 * (GRPO, arXiv 2402.03300).
 */
export const KL_ESTIMATORS = {
  k1: (difference) => ({ value: difference, derivative: 1 }),
  k2: (difference) => ({ value: difference ** 2 / 2, derivative: difference }),
  k3: (difference) => {
    const ratio = Math.exp(Math.min(Math.max(-difference, -LARGEST_EXPONENT), LARGEST_EXPONENT));
    return { value: ratio - 1 + difference, derivative: 1 - ratio };
  },
} as const satisfies Record<string, (difference: number) => KlEstimate>;

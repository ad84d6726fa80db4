import type { Estimate } from "@osmosis/protocol";

/** 97.5 % quantile of the standard normal distribution. */
const Z = 1.959963984540054;

/** A share of successes with Wilson's 95 % score interval; null when nothing was counted. */
export function wilsonInterval(successes: number, n: number): Estimate | null {
  if (n === 0) return null;
  const value = successes / n;
  const denominator = 1 + (Z * Z) / n;
  const centre = (value + (Z * Z) / (2 * n)) / denominator;
  const half = (Z / denominator) * Math.sqrt((value * (1 - value)) / n + (Z * Z) / (4 * n * n));
  return {
    value,
    ci_low: successes === 0 ? 0 : Math.max(0, centre - half),
    ci_high: successes === n ? 1 : Math.min(1, centre + half),
    n,
  };
}

/**
 * A mean with the 95 % interval of Student's t, where values of one cluster may depend on each other; null below two
 * clusters. With one value per cluster it is the textbook interval.
 */
export function clusteredMeanInterval(
  items: readonly { readonly cluster: number; readonly value: number }[],
): Estimate | null {
  const n = items.length;
  const mean = items.reduce((sum, { value }) => sum + value, 0) / n;
  const residuals = new Map<number, number>();
  for (const { cluster, value } of items) {
    residuals.set(cluster, (residuals.get(cluster) ?? 0) + value - mean);
  }
  const clusters = residuals.size;
  if (clusters < 2) return null;
  const squares = [...residuals.values()].reduce((sum, residual) => sum + residual * residual, 0);
  const error = Math.sqrt((squares / (n * n)) * (clusters / (clusters - 1)));
  const half = studentQuantile(clusters - 1) * error;
  return { value: mean, ci_low: mean - half, ci_high: mean + half, n };
}

/** 97.5 % quantiles of Student's t distribution with 1, 2 and 3 degrees of freedom. */
const SMALL_STUDENT_QUANTILES = [12.706204736174705, 4.302652729749464, 3.182446305284263];

/** 97.5 % quantile of Student's t distribution: by table, then by the Cornish-Fisher expansion, right to three digits. */
export function studentQuantile(degrees: number): number {
  const tabled = SMALL_STUDENT_QUANTILES[degrees - 1];
  if (tabled !== undefined) return tabled;
  const [z3, z5, z7, z9] = [Z ** 3, Z ** 5, Z ** 7, Z ** 9];
  return (
    Z +
    (z3 + Z) / (4 * degrees) +
    (5 * z5 + 16 * z3 + 3 * Z) / (96 * degrees ** 2) +
    (3 * z7 + 19 * z5 + 17 * z3 - 15 * Z) / (384 * degrees ** 3) +
    (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * Z) / (92_160 * degrees ** 4)
  );
}

/** Chance that at least one of k attempts passes, without bias from `attempts` of which `passes` passed (arXiv 2107.03374). */
export function passAtK(attempts: number, passes: number, k: number): number {
  let allFail = 1;
  for (let i = 0; i < k; i++) allFail *= Math.max(0, attempts - passes - i) / (attempts - i);
  return 1 - allFail;
}

/** The value at a share of a sorted list, interpolated linearly between neighbours. */
export function quantile(sorted: readonly number[], share: number): number {
  const position = (sorted.length - 1) * share;
  const low = sorted[Math.floor(position)] ?? Number.NaN;
  const high = sorted[Math.ceil(position)] ?? Number.NaN;
  return low + (high - low) * (position - Math.floor(position));
}

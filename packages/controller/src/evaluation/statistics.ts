import type { Estimate } from "@osmosis/protocol";

/** 97.5 % quantile of the standard normal distribution. */
const Z = 1.959963984540054;

/** Values of one cluster may depend on each other: attempts at one row are alike. */
export type Clustered = readonly { readonly cluster: number; readonly value: number }[];

/**
 * The share of ones among values that are 0 or 1, with Wilson's 95 % score interval; null without values. The interval
 * is as wide as so many independent values would make it as the clusters are worth: all of them where the values of a
 * cluster differ as much as any, one a cluster where they are the same. Where all values are the same, nobody can tell,
 * and it is one a cluster. Values of a single cluster are taken as independent: they speak of that cluster alone.
 */
export function shareInterval(items: Clustered): Estimate | null {
  const n = items.length;
  if (n === 0) return null;
  const value = items.reduce((sum, item) => sum + item.value, 0) / n;
  const residuals = clusterResiduals(items, value);
  const spread = n * n * value * (1 - value);
  const alike = residuals.size === 1 ? n : residuals.size;
  const worth = spread === 0 ? alike : Math.min(n, spread / sumOfSquares(residuals));
  return wilsonInterval(value, { n, worth });
}

/** The share of ones among `n` values that are worth so many independent ones, with Wilson's 95 % score interval. */
export function wilsonInterval(
  value: number,
  { n, worth = n }: { readonly n: number; readonly worth?: number },
): Estimate {
  const denominator = 1 + (Z * Z) / worth;
  const centre = (value + (Z * Z) / (2 * worth)) / denominator;
  const half = (Z / denominator) * Math.sqrt((value * (1 - value)) / worth + (Z * Z) / (4 * worth * worth));
  return {
    value,
    ci_low: value === 0 ? 0 : Math.max(0, centre - half),
    ci_high: value === 1 ? 1 : Math.min(1, centre + half),
    n,
  };
}

/**
 * A mean with the 95 % interval of Student's t; null below two clusters. With one value per cluster it is the textbook
 * interval. It is symmetric and knows no bounds: next to the end of a grader's scale it may reach beyond.
 */
export function meanInterval(items: Clustered): Estimate | null {
  const n = items.length;
  const mean = items.reduce((sum, { value }) => sum + value, 0) / n;
  const residuals = clusterResiduals(items, mean);
  const clusters = residuals.size;
  if (clusters < 2) return null;
  const error = Math.sqrt((sumOfSquares(residuals) / (n * n)) * (clusters / (clusters - 1)));
  const half = studentQuantile(clusters - 1) * error;
  return { value: mean, ci_low: mean - half, ci_high: mean + half, n };
}

/**
 * The mean of differences, one a row, between results of 0 to 1, with the interval of `meanInterval`. Where all rows
 * differ by the same -1, 0 or 1, that would be a point, as if no other row could differ: then it is that of Agresti and
 * Min (Statistics in Medicine 24, 2005), which counts half a row more of each of the four ways in which two runs can pass
 * and fail. Null below two rows, and where all differ by the same part of 1: nobody can tell.
 */
export function differenceInterval(items: Clustered): Estimate | null {
  const difference = items[0]?.value ?? 0;
  const n = items.length;
  if (n < 2 || items.some(({ value }) => value !== difference)) return meanInterval(items);
  if (![-1, 0, 1].includes(difference)) return null;
  const [fewer, more] = [0.5 + (difference < 0 ? n : 0), 0.5 + (difference > 0 ? n : 0)];
  const centre = (more - fewer) / (n + 2);
  const half = (Z / (n + 2)) * Math.sqrt(more + fewer - (more - fewer) * centre);
  return {
    value: difference,
    ci_low: difference === -1 ? -1 : centre - half,
    ci_high: difference === 1 ? 1 : centre + half,
    n,
  };
}

/** How far the values of each cluster are from the mean, added up. */
function clusterResiduals(items: Clustered, mean: number): ReadonlyMap<number, number> {
  const residuals = new Map<number, number>();
  for (const { cluster, value } of items) {
    residuals.set(cluster, (residuals.get(cluster) ?? 0) + value - mean);
  }
  return residuals;
}

function sumOfSquares(residuals: ReadonlyMap<number, number>): number {
  return [...residuals.values()].reduce((sum, residual) => sum + residual * residual, 0);
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

import type { PairedDifference, PairedRows, RolloutRecord } from "@osmosis/protocol";
import { isSkipped } from "../evaluation/results.ts";
import { differenceInterval } from "../evaluation/statistics.ts";

/** The part of a rollout that a comparison reads. */
export type ValidationRollout = Pick<RolloutRecord, "row_index" | "outcome" | "reward">;

/** What a run answered to rows of a data set. */
export type Measured = {
  /** Smallest reward that passes. */
  readonly passThreshold: number;
  readonly rollouts: readonly ValidationRollout[];
};

export type Validation = Measured & { readonly run: string; readonly step: number };

/** Two validations of the same held-out rows, row by row: see `pairedRows`. */
export function pairedDifference(a: Validation, b: Validation): PairedDifference {
  const { rows, reward, pass_rate, won_rows, lost_rows, sign_test_p } = pairedRows(a, b);
  return {
    a: a.run,
    b: b.run,
    a_step: a.step,
    b_step: b.step,
    rows,
    reward,
    pass_rate,
    only_a_passes: lost_rows.length,
    only_b_passes: won_rows.length,
    sign_test_p,
  };
}

/**
 * Two measurements of the same rows, row by row: what differs between rows cancels out, so the interval is narrower than
 * that of two separate rates. A row that either run has no answer for is left out; several rollouts of a row count as
 * their mean.
 */
export function pairedRows(a: Measured, b: Measured): PairedRows {
  const rewards = pairsOf(a, b, ({ reward }) => reward ?? undefined);
  const passes = pairsOf(a, b, passOf);
  const rowsWhere = (test: (value: number) => boolean): number[] =>
    passes
      .flatMap(({ cluster, value }) => (test(value) ? [cluster] : []))
      .toSorted((one, other) => one - other);
  const [lost, won] = [rowsWhere((value) => value < 0), rowsWhere((value) => value > 0)];
  return {
    rows: passes.length,
    reward: differenceInterval(rewards),
    pass_rate: differenceInterval(passes),
    won_rows: won,
    lost_rows: lost,
    sign_test_p: signTest(lost.length, won.length),
    rows_only_in_a: rowValues(a, passOf).size - passes.length,
    rows_only_in_b: rowValues(b, passOf).size - passes.length,
  };
}

/** What a rollout says about its row; undefined where it says nothing. */
type ValueOf = (rollout: ValidationRollout, passThreshold: number) => number | undefined;

const passOf: ValueOf = ({ outcome, reward }, threshold) =>
  isSkipped(outcome) ? undefined : reward !== null && reward >= threshold ? 1 : 0;

function pairsOf(a: Measured, b: Measured, valueOf: ValueOf): { cluster: number; value: number }[] {
  const inB = rowValues(b, valueOf);
  return [...rowValues(a, valueOf)].flatMap(([row, value]) => {
    const other = inB.get(row);
    return other === undefined ? [] : [{ cluster: row, value: other - value }];
  });
}

/** The mean value of each row that has one. */
function rowValues({ rollouts, passThreshold }: Measured, valueOf: ValueOf): ReadonlyMap<number, number> {
  const rows = new Map<number, number[]>();
  for (const rollout of rollouts) {
    const value = valueOf(rollout, passThreshold);
    if (value === undefined) continue;
    const values = rows.get(rollout.row_index);
    if (values === undefined) rows.set(rollout.row_index, [value]);
    else values.push(value);
  }
  return new Map([...rows].map(([row, values]) => [row, mean(values)] as const));
}

/** Two-sided: how likely a split at least as uneven is when both are equally good; null without a differing row. */
export function signTest(losses: number, wins: number): number | null {
  const n = losses + wins;
  if (n === 0) return null;
  const fewer = Math.min(losses, wins);
  // Binomial terms by their logarithms: 2^-n alone is 0 for large n.
  let logTerm = -n * Math.LN2;
  let tail = 0;
  for (let k = 0; k <= fewer; k++) {
    tail += Math.exp(logTerm);
    logTerm += Math.log((n - k) / (k + 1));
  }
  return Math.min(1, 2 * tail);
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

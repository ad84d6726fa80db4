import type { PairedDifference, RolloutRecord } from "@osmosis/protocol";
import { isSkipped } from "../evaluation/results.ts";
import { differenceInterval } from "../evaluation/statistics.ts";

/** The part of a validation rollout that a comparison reads. */
export type ValidationRollout = Pick<RolloutRecord, "row_index" | "outcome" | "reward">;

export type Validation = {
  readonly run: string;
  readonly step: number;
  /** Smallest reward that passes. */
  readonly passThreshold: number;
  readonly rollouts: readonly ValidationRollout[];
};

/**
 * Two validations of the same held-out rows, row by row: what differs between rows cancels out, so the interval is
 * narrower than that of two separate rates. A row that either run has no answer for is left out; several rollouts of a
 * row count as their mean.
 */
export function pairedDifference(a: Validation, b: Validation): PairedDifference {
  const rewards = pairsOf(a, b, ({ reward }) => reward ?? undefined);
  const passes = pairsOf(a, b, ({ outcome, reward }, threshold) =>
    isSkipped(outcome) ? undefined : reward !== null && reward >= threshold ? 1 : 0,
  );
  const onlyA = passes.filter(({ value }) => value < 0).length;
  const onlyB = passes.filter(({ value }) => value > 0).length;
  return {
    a: a.run,
    b: b.run,
    a_step: a.step,
    b_step: b.step,
    rows: passes.length,
    reward: differenceInterval(rewards),
    pass_rate: differenceInterval(passes),
    only_a_passes: onlyA,
    only_b_passes: onlyB,
    sign_test_p: signTest(onlyA, onlyB),
  };
}

function pairsOf(
  a: Validation,
  b: Validation,
  valueOf: (rollout: ValidationRollout, passThreshold: number) => number | undefined,
): { cluster: number; value: number }[] {
  const [inA, inB] = [a, b].map(({ rollouts, passThreshold }) => {
    const rows = new Map<number, number[]>();
    for (const rollout of rollouts) {
      const value = valueOf(rollout, passThreshold);
      if (value === undefined) continue;
      rows.set(rollout.row_index, [...(rows.get(rollout.row_index) ?? []), value]);
    }
    return new Map([...rows].map(([row, values]) => [row, mean(values)] as const));
  });
  return [...(inA ?? [])].flatMap(([row, value]) => {
    const other = inB?.get(row);
    return other === undefined ? [] : [{ cluster: row, value: other - value }];
  });
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

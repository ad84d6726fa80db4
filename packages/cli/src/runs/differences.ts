import type { Estimate, RunComparison } from "@osmosis/protocol";
import type { Table } from "../output/result.ts";

/** Settings that are not the same in all runs. */
export function differencesTable(
  runs: readonly { readonly name: string }[],
  differences: RunComparison["differences"],
): Table {
  return {
    headers: ["SETTING", ...runs.map(({ name }) => name)],
    rows: differences.map(({ key, values }) => [
      key,
      ...values.map((value) =>
        value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value),
      ),
    ]),
  };
}

/** A paired difference: `+0.120 (95 % interval +0.050 to +0.190)`. */
export function difference(estimate: Estimate | null): string {
  if (estimate === null) return "without an interval (too few rows, or the same in all)";
  return `${signed(estimate.value)} (95 % interval ${signed(estimate.ci_low)} to ${signed(estimate.ci_high)})`;
}

function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
}

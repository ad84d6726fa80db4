import type { EvalResults } from "@osmosis/protocol";
import type { ReactElement } from "react";
import { formatConditions, formatShare } from "../format.ts";

/** Rollouts that count for the pass rate. */
export function countedIn(results: EvalResults): number {
  return results.total_runs - results.skipped;
}

/** A pass rate is never without its n and its temperature; of nothing there is none. */
export function PassRate({ results }: { readonly results: EvalResults | null }): ReactElement {
  if (results === null || countedIn(results) === 0) return <>–</>;
  return (
    <>
      {formatShare(results.pass_rate)}
      <small>{formatConditions(countedIn(results), results.temperature)}</small>
    </>
  );
}

import type { ReactElement } from "react";

/** The state of a run or the outcome of a rollout, by word and by colour. */
export function Status({ value }: { readonly value: string }): ReactElement {
  return <span className={`status status-${value}`}>{value}</span>;
}

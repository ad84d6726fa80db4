import type { DatasetRow } from "@osmosis/protocol";
import type { RunPorts } from "../run-ports.ts";

/**
 * How the rows are split: the first `holdoutRows` are held out for validation, all others are trained on, but for those
 * whose prompt, messages and metadata together, is also the prompt of a held-out row. So nothing that validation measures
 * was ever trained on, whatever the labels.
 */
export type RowSplit = {
  readonly held: readonly DatasetRow[];
  /** Rows behind the held-out ones that may not be trained on, because their prompt is held out. */
  readonly leaked: readonly DatasetRow[];
  readonly isTrained: (row: DatasetRow) => boolean;
};

export function splitRows(rows: readonly DatasetRow[], holdoutRows: number): RowSplit {
  const held = rows.slice(0, holdoutRows);
  const prompts = new Set(held.map(promptOf));
  const leaked = held.length === 0 ? [] : rows.slice(holdoutRows).filter((row) => prompts.has(promptOf(row)));
  const refused = new Set([...held, ...leaked].map(({ row_index }) => row_index));
  return { held, leaked, isTrained: ({ row_index }) => !refused.has(row_index) };
}

function promptOf({ messages, metadata }: DatasetRow): string {
  return JSON.stringify([messages, metadata]);
}

const SHOWN_ROWS = 5;

/** Tells about rows that are not trained on though they could have been. */
export function warnAboutLeaks({ leaked }: RowSplit, log: RunPorts["log"]): void {
  if (leaked.length === 0) return;
  const shown = leaked.slice(0, SHOWN_ROWS).map(({ row_index }) => row_index);
  const more = leaked.length > shown.length ? " …" : "";
  log({
    level: "warning",
    step: "train",
    message:
      `${leaked.length} rows have the prompt of a held-out row, and are not trained on: ${shown.join(", ")}${more}. ` +
      "Remove the duplicates from the data set.",
  });
}

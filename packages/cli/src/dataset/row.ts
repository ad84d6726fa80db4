import type { Dataset } from "@osmosis/protocol";
import { formatBytes, formatCount, formatTime } from "../output/format.ts";
import type { Table } from "../output/result.ts";

/** A data set as `--json` shows it. */
export function datasetRow(dataset: Dataset): Record<string, unknown> {
  const { data_preview: _preview, ...rest } = dataset;
  return rest;
}

export function datasetTable(datasets: readonly Dataset[]): Table {
  return {
    headers: ["NAME", "STATUS", "FORMAT", "ROWS", "SIZE", "CREATED"],
    rows: datasets.map((dataset) => [
      dataset.file_name,
      dataset.status,
      dataset.file_format,
      formatCount(dataset.row_count),
      formatBytes(dataset.file_size),
      formatTime(dataset.created_at),
    ]),
    numeric: ["ROWS", "SIZE"],
  };
}

import { open } from "node:fs/promises";
import { extname } from "node:path";
import { OsmosisError, errorMessage, type DatasetRow } from "@osmosis/protocol";
import { readCsv } from "./csv.ts";
import { FaultList, type DatasetFault } from "./fault.ts";
import { readParquet } from "./parquet.ts";
import { readJsonl, type SourceRow } from "./jsonl.ts";
import { normaliseRow, schemaOf, type RowSchema } from "./row.ts";

export const MIN_DATASET_ROWS = 4;
export const MAX_DATASET_BYTES = 5 * 1024 ** 3;

export type DatasetFormat = "jsonl" | "csv" | "parquet";

/** What a data set's file holds, or what is wrong with it. */
export type DatasetReport = {
  readonly isValid: boolean;
  /** Rows, readable or not. */
  readonly rowCount: number;
  readonly columns: readonly string[];
  readonly mode: RowSchema["mode"] | null;
  /** The first rows as the file has them, up to 20; long texts are cut. */
  readonly preview: readonly Readonly<Record<string, unknown>>[];
  /** The first faults, up to 20. */
  readonly faults: readonly DatasetFault[];
  readonly faultCount: number;
};

/** Where the bytes are. `range` is inclusive at both ends. */
export type DatasetBytes = {
  readonly sizeBytes: number;
  readonly open: (range?: { readonly start: number; readonly end: number }) => AsyncIterable<Uint8Array>;
};

export type DatasetSource = {
  readonly bytes: DatasetBytes;
  readonly format: DatasetFormat;
  /** Gets every row in order, until the first fault; awaited. */
  readonly onRow?: (row: DatasetRow) => Promise<void> | void;
  readonly signal?: AbortSignal;
};

const PREVIEW_ROWS = 20;

/** Reads a data set once, holding one row at a time, and says what is in it. Faults are data, never thrown. */
export async function validateDataset({
  bytes,
  format,
  onRow,
  signal,
}: DatasetSource): Promise<DatasetReport> {
  const faults = new FaultList();
  const preview: Record<string, unknown>[] = [];
  let schema: RowSchema | undefined;
  let columns: readonly string[] | undefined;
  let rowCount = 0;
  for await (const { line, fields } of rowsOf(bytes, format, faults)) {
    signal?.throwIfAborted();
    const rowIndex = rowCount;
    rowCount += 1;
    if (fields === null) continue;
    if (preview.length < PREVIEW_ROWS) preview.push(shortenFields(fields));
    if (columns === undefined) {
      columns = Object.keys(fields);
      schema = schemaOf({ line, columns }, faults);
    }
    if (schema === undefined) continue;
    const row = normaliseRow({ line, fields, rowIndex }, schema, faults);
    if (row !== null && faults.count === 0) await onRow?.(row);
  }
  if (rowCount < MIN_DATASET_ROWS && (schema !== undefined || faults.count === 0)) {
    faults.add({
      line: 0,
      column: null,
      message:
        rowCount === 0
          ? "the file has no rows"
          : `the file has ${rowCount} ${rowCount === 1 ? "row" : "rows"}`,
      hint: `A data set needs at least ${MIN_DATASET_ROWS} rows.`,
    });
  }
  return {
    isValid: faults.count === 0,
    rowCount,
    columns: columns ?? [],
    mode: schema?.mode ?? null,
    preview,
    faults: faults.faults,
    faultCount: faults.count,
  };
}

function rowsOf(bytes: DatasetBytes, format: DatasetFormat, faults: FaultList): AsyncIterable<SourceRow> {
  switch (format) {
    case "jsonl":
      return readJsonl(bytes.open(), faults);
    case "csv":
      return readCsv(bytes.open(), faults);
    case "parquet":
      return readParquet(bytes, faults);
  }
}

/**
 * As {@link validateDataset}, for a file of this machine. Its format is that of its extension.
 *
 * @throws OsmosisError `VALIDATION` when it cannot be a data set at all: no such file, empty, too large, a foreign extension.
 */
export async function readDatasetFile(
  path: string,
  options: Pick<DatasetSource, "onRow" | "signal"> = {},
): Promise<DatasetReport & { readonly format: DatasetFormat; readonly sizeBytes: number }> {
  const format = datasetFormatOf(path);
  await using file = await open(path).catch((error: unknown) => {
    throw new OsmosisError("VALIDATION", `${path} cannot be read: ${errorMessage(error)}.`, {
      hint: "Check the path of the data set's file.",
      cause: error,
    });
  });
  const stat = await file.stat();
  if (!stat.isFile()) throw new OsmosisError("VALIDATION", `${path} is not a file.`);
  checkDatasetSize(path, stat.size);
  const report = await validateDataset({
    bytes: {
      sizeBytes: stat.size,
      open: (range) =>
        file.createReadStream({ start: 0, ...range, autoClose: false, highWaterMark: 1024 * 1024 }),
    },
    format,
    ...options,
  });
  return { ...report, format, sizeBytes: stat.size };
}

/** @throws OsmosisError `VALIDATION` for an extension that no data set has. */
export function datasetFormatOf(path: string): DatasetFormat {
  const extension = extname(path).slice(1).toLowerCase();
  if (extension === "jsonl" || extension === "csv" || extension === "parquet") return extension;
  throw new OsmosisError(
    "VALIDATION",
    `${path} is not a data set: its name must end in .jsonl, .csv or .parquet.`,
    {
      hint: "Save the rows as JSONL: one JSON object on each line.",
    },
  );
}

/** @throws OsmosisError `VALIDATION` for an empty or too large file. */
export function checkDatasetSize(name: string, sizeBytes: number): void {
  if (sizeBytes === 0) {
    throw new OsmosisError("VALIDATION", `${name} is empty.`, {
      hint: `A data set needs at least ${MIN_DATASET_ROWS} rows.`,
    });
  }
  if (sizeBytes > MAX_DATASET_BYTES) {
    throw new OsmosisError("VALIDATION", `${name} has ${sizeBytes} bytes; a data set may have 5 GiB.`, {
      hint: "Split it into several data sets.",
    });
  }
}

const PREVIEW_TEXT = 2000;
const PREVIEW_ITEMS = 50;

function shortenFields(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, shorten(value)]));
}

function shorten(value: unknown): unknown {
  if (typeof value === "string")
    return value.length > PREVIEW_TEXT ? `${value.slice(0, PREVIEW_TEXT)}…` : value;
  if (Array.isArray(value)) return value.slice(0, PREVIEW_ITEMS).map(shorten);
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(
      Object.entries(value)
        .slice(0, PREVIEW_ITEMS)
        .map(([key, item]) => [key, shorten(item)]),
    );
  }
  return value;
}

import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from "node:zlib";
import { errorMessage } from "@osmosis/protocol";
import { parquetMetadataAsync, parquetReadObjects, type AsyncBuffer, type Compressors } from "hyparquet";
import type { FaultList } from "./fault.ts";
import type { SourceRow } from "./jsonl.ts";
import type { DatasetBytes } from "./validate.ts";

/** Snappy, the default of most writers, is the reader's own. */
const COMPRESSORS: Compressors = {
  GZIP: (input) => gunzipSync(input),
  BROTLI: (input) => brotliDecompressSync(input),
  ZSTD: (input) => zstdDecompressSync(input),
};

/** The rows of a Parquet file, one row group in memory at a time; `line` is the number of the row, from 1. */
export async function* readParquet(bytes: DatasetBytes, faults: FaultList): AsyncGenerator<SourceRow> {
  const file: AsyncBuffer = {
    byteLength: bytes.sizeBytes,
    slice: async (start, end = bytes.sizeBytes) => await readRange(bytes, start, end),
  };
  let rowStart = 0;
  try {
    const metadata = await parquetMetadataAsync(file);
    for (const group of metadata.row_groups) {
      const rowEnd = rowStart + Number(group.num_rows);
      const rows = await parquetReadObjects({ file, metadata, rowStart, rowEnd, compressors: COMPRESSORS });
      for (const [index, row] of rows.entries())
        yield { line: rowStart + index + 1, fields: plainFields(row) };
      rowStart = rowEnd;
    }
  } catch (error) {
    faults.add({
      line: 0,
      column: null,
      message: `the Parquet file cannot be read: ${errorMessage(error).slice(0, 200)}`,
      hint: "Write it again with Snappy, gzip, Brotli or Zstandard compression, or convert it to JSONL.",
    });
  }
}

async function readRange(bytes: DatasetBytes, start: number, end: number): Promise<ArrayBuffer> {
  // The reader asks for suffixes, too.
  const first = start < 0 ? Math.max(0, bytes.sizeBytes + start) : start;
  const last = Math.min(end, bytes.sizeBytes) - 1;
  const buffer = new Uint8Array(Math.max(0, last + 1 - first));
  if (buffer.length === 0) return buffer.buffer;
  let offset = 0;
  for await (const part of bytes.open({ start: first, end: last })) {
    buffer.set(part, offset);
    offset += part.length;
  }
  return buffer.buffer;
}

function plainFields(row: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(row).map(([key, value]) => [key, plain(value)]));
}

/** As JSON would have it: 64-bit integers as numbers, dates as text. */
function plain(value: unknown): unknown {
  if (value === undefined) return null;
  if (typeof value === "bigint") return Number(value);
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map(plain);
  return typeof value === "object" && value !== null ? plainFields({ ...value }) : value;
}

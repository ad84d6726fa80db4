import { pipeline, Readable } from "node:stream";
import { CsvError, parse, type Info, type InfoRecord } from "csv-parse";
import type { DatasetFault, FaultList } from "./fault.ts";
import type { SourceRow } from "./jsonl.ts";
import { MAX_LINE_BYTES, readLines } from "./lines.ts";

/** The rows of a CSV file with a header. Cells are text; blank lines are no rows. */
export async function* readCsv(
  bytes: AsyncIterable<Uint8Array>,
  faults: FaultList,
): AsyncGenerator<SourceRow> {
  // Quotes may span lines, so behind a line that was not kept nobody knows what is inside a cell.
  let isBroken = false;
  async function* text(): AsyncGenerator<string> {
    for await (const line of readLines(bytes, faults)) {
      isBroken ||= line.problem === "too_long";
      yield `${line.text}\n`;
    }
  }
  let lastLine = 0;
  const parser = parse({
    info: true,
    on_record(record: string[], context) {
      lastLine = (context as InfoRecord & Info).lines;
      return record;
    },
    relax_column_count: true,
    skip_empty_lines: true,
    record_delimiter: "\n",
    max_record_size: MAX_LINE_BYTES,
  });
  // A failure of the source reaches the reader through the parser.
  pipeline(Readable.from(text()), parser, () => {});
  let header: readonly string[] | undefined;
  let seen = 0;
  try {
    for await (const item of parser) {
      // With `info: true` the parser gives both, which its types do not say.
      const { record, info } = item as { record: string[]; info: InfoRecord & Info };
      const line = info.lines - newlinesIn(record);
      seen += 1;
      if (header === undefined) {
        header = record;
        if (!checkHeader(header, line, faults)) return;
      } else if (record.length > 1 || header.length === 1 || record[0]?.trim() !== "") {
        yield { line, fields: isBroken ? null : rowOf(header, record, line, faults) };
      }
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    faults.add({ line: lastLine + 1, column: null, ...explain(error) });
    // Rows that were parsed and not yet read are gone with the parser: they still count, and so does the broken one.
    const parsed = typeof error["records"] === "number" ? error["records"] : seen;
    for (let i = Math.max(seen, 1); i <= parsed; i++) yield { line: lastLine + 1, fields: null };
  }
}

function newlinesIn(record: readonly string[]): number {
  return record.reduce((count, cell) => count + cell.split("\n").length - 1, 0);
}

function checkHeader(header: readonly string[], line: number, faults: FaultList): boolean {
  const before = faults.count;
  for (const [index, name] of header.entries()) {
    if (name.trim() === "") {
      faults.add({
        line,
        column: null,
        message: `names no column ${index + 1}`,
        hint: "The first line must name every column.",
      });
    } else if (header.indexOf(name) !== index) {
      faults.add({
        line,
        column: name,
        message: `is the name of column ${header.indexOf(name) + 1} and of column ${index + 1}`,
        hint: "Give each column a name of its own.",
      });
    }
  }
  return faults.count === before;
}

function rowOf(
  header: readonly string[],
  record: readonly string[],
  line: number,
  faults: FaultList,
): Record<string, string> | null {
  if (record.length !== header.length) {
    faults.add({
      line,
      column: null,
      message: `has ${record.length} cells, and the header names ${header.length} columns`,
      hint: "Quote cells that contain commas or newlines, and give every row all its cells.",
    });
    return null;
  }
  return Object.fromEntries(header.map((name, index) => [name, record[index] ?? ""]));
}

function explain(error: CsvError): Pick<DatasetFault, "message" | "hint"> {
  switch (error.code) {
    case "CSV_QUOTE_NOT_CLOSED":
      return {
        message: "opens a quote that is never closed",
        hint: "Close the quote, or double it inside a cell.",
      };
    case "INVALID_OPENING_QUOTE":
      return {
        message: "has a quote in the middle of a cell that is not quoted",
        hint: 'Quote the whole cell and double the quotes inside it: "say ""hello""".',
      };
    case "CSV_INVALID_CLOSING_QUOTE":
      return {
        message: "has text after a closing quote",
        hint: 'Double the quotes inside a quoted cell: "say ""hello""".',
      };
    case "CSV_MAX_RECORD_SIZE":
      return {
        message: `begins a row of more than ${MAX_LINE_BYTES} bytes (16 MiB)`,
        hint: "Shorten the row, or close the quote that it opens.",
      };
    default:
      return {
        message: `is not valid CSV: ${error.message}`,
        hint: "Check the quotes and commas of this line.",
      };
  }
}

import { errorMessage, repeatedKey } from "@osmosis/protocol";
import type { FaultList } from "./fault.ts";
import { readLines } from "./lines.ts";
import { MAX_LEVELS, isDeeperThan } from "./nesting.ts";

/** A row as the file has it. */
export type SourceRow = {
  /** The line that it begins on, from 1. */
  readonly line: number;
  /** Null when the row was unreadable, which is a fault already. */
  readonly fields: Readonly<Record<string, unknown>> | null;
};

/** The rows of a JSONL file: one object a line. Blank lines are no rows. */
export async function* readJsonl(
  bytes: AsyncIterable<Uint8Array>,
  faults: FaultList,
): AsyncGenerator<SourceRow> {
  for await (const { number, text, problem } of readLines(bytes, faults)) {
    if (problem !== null) yield { line: number, fields: null };
    else if (text.trim() !== "") yield { line: number, fields: parseLine(text, number, faults) };
  }
}

function parseLine(text: string, line: number, faults: FaultList): Record<string, unknown> | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    faults.add({
      line,
      column: null,
      message: `is not valid JSON: ${errorMessage(error).slice(0, 200)}`,
      hint: /^\s*[[{]\s*$/.test(text)
        ? "The file seems to be one JSON document over many lines: write each row as one object on one line."
        : "Write each row as one JSON object on one line.",
    });
    return null;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    faults.add({
      line,
      column: null,
      message: `is ${kindOf(value)}, not an object`,
      hint: "Write each row as one JSON object on one line.",
    });
    return null;
  }
  if (isDeeperThan(MAX_LEVELS, value)) {
    faults.add({
      line,
      column: null,
      message: `holds lists and objects inside each other, more than ${MAX_LEVELS} deep`,
      hint: "Flatten the row, or keep the deep part as text.",
    });
    return null;
  }
  const repeated = repeatedKey(text);
  if (repeated !== undefined) {
    faults.add({
      line,
      column: repeated,
      message: "stands twice in this row",
      hint: "Keep one of the two, or rename one of them.",
    });
    return null;
  }
  // Arrays and null are excluded above.
  return value as Record<string, unknown>;
}

/** What a JSON value is, with its article. */
export function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

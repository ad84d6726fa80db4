import { repeatedKey } from "@osmosis/protocol";
import type { FaultList } from "./fault.ts";
import { kindOf } from "./jsonl.ts";
import { MAX_LEVELS, isDeeperThan } from "./nesting.ts";

/** How many paths are compared over all rows; metadata with more of them is checked row by row only. */
const MAX_PATHS = 10_000;

/** The kind of value that the first row had at each path, such as `$.a.b` or `$.list[]`. */
export type MetadataKinds = Map<string, { readonly kind: string; readonly line: number }>;

/**
 * The metadata of a row: an object, or the JSON text of one. It must not be empty, nor hold an empty object, nor an
 * integer that would be rounded; at each path the kind of value must be that of the rows before, null aside.
 *
 * @returns null after a fault
 */
export function readMetadata(
  cell: unknown,
  place: { readonly line: number; readonly kinds: MetadataKinds; readonly faults: FaultList },
): Record<string, unknown> | null {
  const { line, kinds, faults } = place;
  const before = faults.count;
  const value = typeof cell === "string" ? parseText(cell, line, faults) : cell;
  if (faults.count > before) return null;
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    faults.add({
      line,
      column: "metadata",
      message: cell === "" ? "is blank" : `is ${kindOf(value)}, not an object`,
      hint: "Every row needs a JSON object here, or a string that holds one.",
    });
    return null;
  }
  check(value, "$");
  // Arrays and null are excluded above.
  return faults.count > before ? null : (value as Record<string, unknown>);

  function check(part: unknown, path: string): void {
    if (part === null) return;
    const kind = Array.isArray(part) ? "array" : typeof part;
    const known = kinds.get(path);
    if (known === undefined) {
      if (kinds.size < MAX_PATHS) kinds.set(path, { kind, line });
    } else if (known.kind !== kind) {
      faults.add({
        line,
        column: `metadata ${path}`,
        message: `is of type ${kind}, and of type ${known.kind} in line ${known.line}`,
        hint: "Use one type for this value in all rows.",
      });
      return;
    }
    if (Array.isArray(part)) {
      for (const item of part) check(item, `${path}[]`);
    } else if (typeof part === "object") {
      const entries = Object.entries(part);
      if (entries.length === 0) {
        faults.add({
          line,
          column: path === "$" ? "metadata" : `metadata ${path}`,
          message: "is an empty object",
          hint: path === "$" ? "Every row needs at least one key here." : "Leave the key out, or use null.",
        });
      }
      for (const [key, item] of entries) check(item, `${path}.${key}`);
    } else if (typeof part === "number" && Number.isInteger(part) && !Number.isSafeInteger(part)) {
      faults.add({
        line,
        column: `metadata ${path}`,
        message: "is an integer beyond 2^53, which would be rounded",
        hint: "Write it as a string.",
      });
    }
  }
}

function parseText(text: string, line: number, faults: FaultList): unknown {
  if (text.trim() === "") return "";
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    faults.add({
      line,
      column: "metadata",
      message: "is a string that holds no valid JSON",
      hint: "Every row needs a JSON object here, or a string that holds one.",
    });
    return null;
  }
  if (isDeeperThan(MAX_LEVELS, value)) {
    faults.add({
      line,
      column: "metadata",
      message: `holds lists and objects inside each other, more than ${MAX_LEVELS} deep`,
      hint: "Flatten it.",
    });
    return null;
  }
  const repeated = repeatedKey(text);
  if (repeated !== undefined) {
    faults.add({
      line,
      column: `metadata $.${repeated}`,
      message: "stands twice in this object",
      hint: "Keep one of the two, or rename one of them.",
    });
  }
  return value;
}

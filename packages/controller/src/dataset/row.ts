import { closest, type DatasetRow } from "@osmosis/protocol";
import type { FaultList } from "./fault.ts";
import { kindOf, type SourceRow } from "./jsonl.ts";
import { readMetadata, type MetadataKinds } from "./metadata.ts";

/** Columns with a meaning. All others are allowed and kept in the file only. */
const KNOWN_COLUMNS = ["system_prompt", "user_prompt", "ground_truth", "label", "metadata"];

/**
 * What the first row fixes for all: its columns, and by them the mode. With a column `metadata` every row carries its
 * task there and prompts are optional; without one every row needs `user_prompt` and `ground_truth` (or `label`).
 */
export type RowSchema = {
  readonly line: number;
  readonly columns: ReadonlySet<string>;
  readonly mode: "prompt" | "metadata";
  readonly labelColumn: "ground_truth" | "label" | null;
  readonly kinds: MetadataKinds;
};

/** The schema that the first readable row sets, or undefined when it lacks a column, which is a fault. */
export function schemaOf(
  first: { line: number; columns: readonly string[] },
  faults: FaultList,
): RowSchema | undefined {
  const columns = new Set(first.columns);
  const mode = columns.has("metadata") ? "metadata" : "prompt";
  const labelColumn = columns.has("ground_truth") ? "ground_truth" : columns.has("label") ? "label" : null;
  if (mode === "prompt") {
    const before = faults.count;
    if (!columns.has("user_prompt")) missingColumn("user_prompt", first, faults);
    if (labelColumn === null) missingColumn("ground_truth", first, faults);
    if (faults.count > before) return undefined;
  }
  return { line: first.line, columns, mode, labelColumn, kinds: new Map() };
}

function missingColumn(
  column: string,
  first: { line: number; columns: readonly string[] },
  faults: FaultList,
): void {
  const others = first.columns.filter((name) => !KNOWN_COLUMNS.includes(name));
  const meant =
    closest(column, others) ?? others.find((name) => name.toLowerCase() === column.replace("_", ""));
  faults.add({
    line: first.line,
    column,
    message: `is missing; the columns are ${first.columns.slice(0, 20).join(", ") || "none"}`,
    hint:
      meant === undefined
        ? "Rows need user_prompt and ground_truth, or a column metadata with a JSON object."
        : `Rename ${meant} to ${column}.`,
  });
}

/**
 * A row as a rollout gets it, or null after a fault.
 *
 * @param rowIndex - position in the file, from 0
 */
export function normaliseRow(
  row: {
    readonly line: number;
    readonly fields: NonNullable<SourceRow["fields"]>;
    readonly rowIndex: number;
  },
  schema: RowSchema,
  faults: FaultList,
): DatasetRow | null {
  const before = faults.count;
  const { line, fields } = row;
  checkColumns(fields, line, schema, faults);
  if (faults.count > before) return null;
  const isRequired = schema.mode === "prompt";
  const system = readText(fields, "system_prompt", { line, isRequired: false, faults });
  const user = readText(fields, "user_prompt", { line, isRequired, faults });
  const label =
    schema.labelColumn === null ? null : readLabel(fields, schema.labelColumn, { line, isRequired, faults });
  const metadata = isRequired
    ? null
    : readMetadata(fields["metadata"], { line, kinds: schema.kinds, faults });
  if (faults.count > before) return null;
  const messages: DatasetRow["messages"] = [];
  if (system !== null) messages.push({ role: "system", content: system });
  if (user !== null) messages.push({ role: "user", content: user });
  return { row_index: row.rowIndex, messages, label, metadata };
}

function checkColumns(
  fields: Readonly<Record<string, unknown>>,
  line: number,
  schema: RowSchema,
  faults: FaultList,
): void {
  const hint = "Give every row the same keys; use null for a value that a row does not have.";
  for (const column of schema.columns) {
    if (!Object.hasOwn(fields, column)) {
      faults.add({ line, column, message: `is missing, and line ${schema.line} has it`, hint });
    }
  }
  for (const column of Object.keys(fields)) {
    if (!schema.columns.has(column)) {
      faults.add({ line, column, message: `is a key that line ${schema.line} does not have`, hint });
    }
  }
}

type Place = { readonly line: number; readonly isRequired: boolean; readonly faults: FaultList };

function readText(fields: Readonly<Record<string, unknown>>, column: string, place: Place): string | null {
  const value = fields[column] ?? null;
  if (typeof value === "string" && value.trim() !== "") return value;
  if (value === null || value === "" || typeof value === "string") {
    if (place.isRequired) {
      place.faults.add({
        line: place.line,
        column,
        message: value === null ? "is null" : "is blank",
        hint: "Write the prompt, or remove the row.",
      });
    }
    return null;
  }
  place.faults.add({
    line: place.line,
    column,
    message: `is ${kindOf(value)}, not text`,
    hint: "Write it as a string.",
  });
  return null;
}

function readLabel(fields: Readonly<Record<string, unknown>>, column: string, place: Place): string | null {
  const value = fields[column] ?? null;
  if (value === null || (typeof value === "string" && value.trim() === "")) {
    if (place.isRequired) {
      place.faults.add({
        line: place.line,
        column,
        message: value === null ? "is null" : "is blank",
        hint: "Write the answer that the grader compares with, or remove the row.",
      });
    }
    return null;
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

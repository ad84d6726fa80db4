import type { Context } from "../context.ts";
import type { Sink } from "../io.ts";
import type { DetailResult, Field, ListResult, NextStep, OperationResult, Result } from "./result.ts";
import { stringifyStrict } from "./strict-json.ts";
import { displayWidth, printable, type Style } from "./style.ts";
import { renderTable, renderTabs } from "./table.ts";

/** What of a command's context decides how its answer looks. */
type Reader = Pick<Context, "mode" | "style"> & {
  readonly io: { readonly stdout: Pick<Sink, "columns"> };
};

/** A result for whoever reads it. */
export function render(result: Result, { mode, style, io }: Reader): string {
  if (mode === "json") return renderJson(result);
  return mode === "plain" ? renderPlain(result) : renderRich(result, style, io.stdout.columns());
}

/** The text of a result for a person: aligned tables, colours, next steps. */
function renderRich(result: Result, style: Style, columns: number): string {
  switch (result.kind) {
    case "silent":
      return "";
    case "list":
      if (result.items.length === 0) return `${style.dim(result.empty)}\n`;
      return renderTable(result.table, style, columns) + moreNote(result, style);
    case "sections":
      return result.sections
        .map(
          (section) =>
            `${style.bold(section.title)}\n` +
            (section.items.length === 0
              ? `${style.dim(section.empty)}\n`
              : renderTable(section.table, style, columns)),
        )
        .join("\n");
    case "detail":
      return (
        (result.title === undefined ? "" : `${style.bold(printable(result.title))}\n`) +
        richFields(result.fields, style) +
        richTables(result, style, columns) +
        richSteps(result.nextSteps, style)
      );
    case "operation": {
      const mark = result.status === "success" ? style.green("✓") : style.yellow("•");
      return (
        `${mark} ${printable(result.message)}\n` +
        richFields(result.fields ?? [], style) +
        richTables(result, style, columns) +
        richSteps(result.nextSteps, style)
      );
    }
  }
}

/** Low-noise lines without colours or headers, for a pipe. No stable schema: that is what `--json` is for. */
function renderPlain(result: Result): string {
  switch (result.kind) {
    case "silent":
      return "";
    case "list":
      return renderTabs(result.table);
    case "sections":
      return result.sections.map((section) => renderTabs(section.table)).join("");
    case "detail":
    case "operation":
      return [
        ...(result.kind === "operation" ? [result.message] : []),
        ...(result.fields ?? []).map(([label, value]) => `${label}: ${value}`),
        ...(result.tables ?? []).flatMap(({ title, table }) => [
          title,
          table.headers.join("\t"),
          renderTabs(table).trimEnd(),
        ]),
        ...(result.nextSteps ?? []).map((step) => `next: ${step.command}`),
      ]
        .map((line) => `${printable(line)}\n`)
        .join("");
  }
}

/** The envelope of a result, `schema_version` 1, in one line. */
function renderJson(result: Result): string {
  if (result.kind === "silent") return "";
  const envelope = { ...("extras" in result ? result.extras : {}), schema_version: 1, ...bodyOf(result) };
  return `${stringifyStrict(envelope)}\n`;
}

function bodyOf(result: Exclude<Result, { kind: "silent" }>): Record<string, unknown> {
  switch (result.kind) {
    case "list":
      return { items: result.items, ...result.page };
    case "sections":
      return Object.fromEntries(
        result.sections.map((section) => [section.key, { items: section.items, ...section.page }]),
      );
    case "detail":
      return { data: result.data, ...steps(result.nextSteps) };
    case "operation":
      return {
        status: result.status,
        operation: result.operation,
        ...(result.resource === undefined ? {} : { resource: result.resource }),
        message: result.message,
        ...steps(result.nextSteps),
      };
  }
}

function steps(nextSteps: readonly NextStep[] | undefined): Record<string, unknown> {
  return nextSteps === undefined || nextSteps.length === 0 ? {} : { next_steps_structured: nextSteps };
}

function richFields(given: readonly Field[], style: Style): string {
  // Some labels are names from elsewhere, such as those of a grader's metrics.
  const fields = given.map(([label, value]) => [printable(label), value] as const);
  const width = Math.max(0, ...fields.map(([label]) => displayWidth(label)));
  return fields
    .map(([label, value]) => {
      const lines = printable(value).split("\n");
      const indent = " ".repeat(width + 4);
      return `  ${style.dim(label.padEnd(width))}  ${lines.join(`\n${indent}`)}\n`;
    })
    .join("");
}

function richTables(result: DetailResult | OperationResult, style: Style, columns: number): string {
  return (result.tables ?? [])
    .map(({ title, table }) => `\n${style.bold(title)}\n${renderTable(table, style, columns)}`)
    .join("");
}

function richSteps(nextSteps: readonly NextStep[] | undefined, style: Style): string {
  if (nextSteps === undefined || nextSteps.length === 0) return "";
  const width = Math.max(...nextSteps.map((step) => step.command.length));
  return `\nNext:\n${nextSteps
    .map((step) => `  ${style.cyan(step.command.padEnd(width))}  ${style.dim(step.description)}\n`)
    .join("")}`;
}

function moreNote({ items, page, extras }: ListResult, style: Style): string {
  if (!page.has_more) return "";
  const cursor = extras?.["next_cursor"];
  return style.dim(
    typeof cursor === "string"
      ? `Older lines: --cursor '${printable(cursor)}'\n`
      : `${items.length} of ${page.total_count}; --all shows the rest.\n`,
  );
}

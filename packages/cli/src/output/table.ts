import type { Table } from "./result.ts";
import { displayWidth, printable, type Style } from "./style.ts";

const GAP = "  ";

/** Columns side by side, with a header line. Cells too long for the terminal are cut in the widest column. */
export function renderTable(table: Table, style: Style, maxWidth: number): string {
  const rows = table.rows.map((row) => row.map(oneLine));
  const widths = table.headers.map((header, column) =>
    Math.max(displayWidth(header), ...rows.map((row) => displayWidth(row[column] ?? ""))),
  );
  const total = widths.reduce((sum, width) => sum + width, 0) + GAP.length * (widths.length - 1);
  if (total > maxWidth) {
    const widest = widths.indexOf(Math.max(...widths));
    widths[widest] = Math.max(12, (widths[widest] ?? 0) - (total - maxWidth));
  }
  const numeric = new Set(table.numeric ?? []);
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        const text = cut(cell, width);
        const space = " ".repeat(Math.max(0, width - displayWidth(text)));
        if (numeric.has(table.headers[column] ?? "")) return space + text;
        return column === cells.length - 1 ? text : text + space;
      })
      .join(GAP);
  return [style.bold(line(table.headers)), ...rows.map(line)].map((text) => `${text}\n`).join("");
}

/** Tab-separated cells, no header. */
export function renderTabs(table: Table): string {
  return table.rows.map((row) => `${row.map(oneLine).join("\t")}\n`).join("");
}

function oneLine(cell: string): string {
  return printable(cell).replaceAll(/[\n\t]/g, " ");
}

function cut(text: string, width: number): string {
  const characters = Array.from(text);
  return characters.length <= width ? text : `${characters.slice(0, width - 1).join("")}…`;
}

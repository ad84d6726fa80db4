/**
 * A line of CSV (RFC 4180). Text that a spreadsheet would take for a formula gets an apostrophe in front, which
 * spreadsheets show as text: models and agents wrote it, and a formula may call out. Numbers stay as they are.
 */
export function csvLine(cells: readonly (string | number | null | undefined)[]): string {
  return `${cells.map(cellOf).join(",")}\n`;
}

function cellOf(cell: string | number | null | undefined): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return String(cell);
  const text = /^[=+\-@\t\r\n]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

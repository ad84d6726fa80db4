/**
 * The line on which a key of a TOML document stands, or its table, from 1. Good enough for configurations: tables in
 * brackets, bare or quoted keys, dotted keys. Undefined when the key is not in the text, as a missing one is not.
 */
export function lineOfKey(text: string, path: readonly string[]): number | undefined {
  let table: readonly string[] = [];
  let tableLine: number | undefined;
  const lines = text.split("\n");
  for (const [index, line] of lines.entries()) {
    const header = /^\s*\[+([^\]]+)\]+\s*(?:#.*)?$/.exec(line);
    if (header !== null) {
      table = keySegments(header[1] ?? "");
      if (isSame(table, path)) return index + 1;
      if (isSame(table, path.slice(0, table.length))) tableLine = index + 1;
      continue;
    }
    const pair = /^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_.\-\s])+?)\s*=/.exec(line);
    if (pair === null) continue;
    const full = [...table, ...keySegments(pair[1] ?? "")];
    // A fault inside an array or an inline table is told at the key that holds it.
    if (isSame(full, path.slice(0, full.length)) && full.length > table.length) return index + 1;
  }
  return tableLine;
}

function keySegments(text: string): string[] {
  return text.split(".").map((part) => part.trim().replace(/^(["'])(.*)\1$/, "$2"));
}

function isSame(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((part, index) => part === b[index]);
}

/**
 * The path of the first key that stands twice in one object of a JSON text, such as `a` or `metadata.a`. `JSON.parse`
 * silently keeps the last of the two.
 *
 * @param text - valid JSON
 */
export function repeatedKey(text: string): string | undefined {
  /** For each open object its keys and the latest of them; null for an open array. */
  const open: ({ keys: Set<string>; latest: string } | null)[] = [];
  let position = 0;
  while (position < text.length) {
    const character = text[position];
    if (character === '"') {
      const end = endOfString(text, position);
      const object = open.at(-1);
      if (object && isKey(text, end)) {
        // The slice is a JSON string, escapes included.
        object.latest = JSON.parse(text.slice(position, end)) as string;
        if (object.keys.has(object.latest)) return pathOf(open);
        object.keys.add(object.latest);
      }
      position = end;
      continue;
    }
    if (character === "{") open.push({ keys: new Set(), latest: "" });
    else if (character === "[") open.push(null);
    else if (character === "}" || character === "]") open.pop();
    position += 1;
  }
  return undefined;
}

/** Position after the closing quote. */
function endOfString(text: string, start: number): number {
  let position = start + 1;
  while (position < text.length && text[position] !== '"') position += text[position] === "\\" ? 2 : 1;
  return position + 1;
}

function isKey(text: string, end: number): boolean {
  let position = end;
  while (
    text[position] === " " ||
    text[position] === "\t" ||
    text[position] === "\r" ||
    text[position] === "\n"
  ) {
    position += 1;
  }
  return text[position] === ":";
}

function pathOf(open: readonly ({ latest: string } | null)[]): string {
  return open.map((level) => (level === null ? "[]" : level.latest)).join(".");
}

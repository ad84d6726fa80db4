/**
 * A value as one line of an NDJSON stream, without the newline. U+2028 and U+2029 are escaped: JSON allows them, and
 * line readers take them for the end of a line.
 */
export function jsonLine(value: unknown): string {
  return JSON.stringify(value).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
}

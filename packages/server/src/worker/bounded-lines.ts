import type { Readable } from "node:stream";

/** What a program may print without a line break is not for us to hold: a longer line is cut. */
const LONGEST_LINE = 64 * 1024;

/**
 * Tells each line that a stream brings, as it comes: a line that never ends takes no more memory than the longest one that
 * is shown. What is cut off is counted at the line's end.
 */
export function readBoundedLines(stream: Readable, onLine: (line: string) => void): void {
  let line = "";
  let cut = 0;

  function take(text: string): void {
    const rest = LONGEST_LINE - line.length;
    line += text.slice(0, rest);
    cut += Math.max(0, text.length - rest);
  }

  function finish(): void {
    const whole = cut === 0 ? line : `${line} … (${cut} more characters)`;
    line = "";
    cut = 0;
    // A program that redraws its line ends it with a carriage return.
    for (const part of whole.replace(/\r$/, "").split("\r")) onLine(part);
  }

  stream.setEncoding("utf8");
  // With an encoding a chunk is a text.
  stream.on("data", (chunk: string) => {
    let start = 0;
    for (let end = chunk.indexOf("\n"); end !== -1; end = chunk.indexOf("\n", start)) {
      take(chunk.slice(start, end));
      finish();
      start = end + 1;
    }
    take(chunk.slice(start));
  });
  stream.on("end", () => {
    if (line !== "" || cut > 0) finish();
  });
}

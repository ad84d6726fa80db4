import { isUtf8 } from "node:buffer";
import type { FaultList } from "./fault.ts";

/** The longest line that is read; also the longest record of a CSV file. */
export const MAX_LINE_BYTES = 16 * 1024 * 1024;

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

export type Line = {
  /** From 1. */
  readonly number: number;
  /** Without its line ending. Where it is not UTF-8 it holds U+FFFD; of a line that is too long nothing is kept. */
  readonly text: string;
  /** What is wrong with it, which is a fault already. */
  readonly problem: "too_long" | "not_utf8" | null;
};

/**
 * Splits bytes into lines. A byte order mark, CRLF and a missing last newline are accepted. A line that is too long or
 * not UTF-8 becomes a fault; of a long line no more than {@link MAX_LINE_BYTES} are ever in memory.
 */
export async function* readLines(bytes: AsyncIterable<Uint8Array>, faults: FaultList): AsyncGenerator<Line> {
  let pending: Uint8Array[] = [];
  let sizeBytes = 0;
  let number = 1;

  const append = (part: Uint8Array) => {
    sizeBytes += part.length;
    if (sizeBytes > MAX_LINE_BYTES) pending = [];
    else pending.push(part);
  };
  const finish = (): Line => {
    const line =
      sizeBytes > MAX_LINE_BYTES ? tooLong(number, sizeBytes, faults) : decode(number, pending, faults);
    pending = [];
    sizeBytes = 0;
    number += 1;
    return line;
  };

  for await (const chunk of bytes) {
    let start = 0;
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
      append(chunk.subarray(start, end));
      start = end + 1;
      yield finish();
    }
    if (start < chunk.length) append(chunk.subarray(start));
  }
  if (sizeBytes > 0) yield finish();
}

function tooLong(number: number, sizeBytes: number, faults: FaultList): Line {
  faults.add({
    line: number,
    column: null,
    message: `is ${sizeBytes} bytes long, and a line may have ${MAX_LINE_BYTES} (16 MiB)`,
    hint: "Shorten the row, or split the file where a newline is missing.",
  });
  return { number, text: "", problem: "too_long" };
}

function decode(number: number, parts: readonly Uint8Array[], faults: FaultList): Line {
  let bytes = parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts);
  if (bytes.at(-1) === CARRIAGE_RETURN) bytes = bytes.subarray(0, -1);
  if (number === 1 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) bytes = bytes.subarray(3);
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString();
  if (isUtf8(bytes)) return { number, text, problem: null };
  const offset = invalidUtf8At(bytes);
  const isUtf16 =
    number === 1 && ((bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff));
  faults.add({
    line: number,
    column: null,
    message: `is not valid UTF-8 at byte ${offset + 1} of the line (0x${(bytes[offset] ?? 0).toString(16).padStart(2, "0")})`,
    hint: isUtf16 ? "The file is UTF-16: save it as UTF-8." : "Save the file as UTF-8.",
  });
  return { number, text, problem: "not_utf8" };
}

/** Index of the first byte that no UTF-8 text has there. The bytes are known to be invalid somewhere. */
function invalidUtf8At(bytes: Uint8Array): number {
  // Decoding puts U+FFFD where it fails, so that encoding again differs there first, at most inside that character.
  const repaired = Buffer.from(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
  let position = 0;
  while (position < bytes.length && bytes[position] === repaired[position]) position += 1;
  while (!isUtf8(bytes.subarray(0, position))) position -= 1;
  return position;
}

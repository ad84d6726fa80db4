/** Files of a `tar` archive, as far as checkpoints need it: regular files, by name. */
import { OsmosisError } from "@osmosis/protocol";

const BLOCK = 512;
const REGULAR = new Set(["0", "\0", ""]);

/**
 * @throws OsmosisError `VALIDATION` for bytes that are no such archive, or end too early.
 */
export function readTar(bytes: Uint8Array): Map<string, Uint8Array> {
  const files = new Map<string, Uint8Array>();
  const decoder = new TextDecoder();
  const text = (at: number, length: number): string => {
    const field = bytes.subarray(at, at + length);
    const end = field.indexOf(0);
    return decoder.decode(end < 0 ? field : field.subarray(0, end));
  };
  let longName: string | undefined;
  if (bytes.length < BLOCK) throw broken("is no tar archive");
  for (let at = 0; at + BLOCK <= bytes.length;) {
    // Two empty blocks end an archive.
    if (bytes[at] === 0) return files;
    if (!text(at + 257, 5).startsWith("ustar")) throw broken("is no tar archive");
    const size = sizeOf(bytes.subarray(at + 124, at + 136), text(at + 124, 12));
    const type = text(at + 156, 1);
    const start = at + BLOCK;
    if (start + size > bytes.length) throw broken("ends too early");
    const content = bytes.subarray(start, start + size);
    at = start + Math.ceil(size / BLOCK) * BLOCK;
    if (type === "L") longName = decoder.decode(content).replace(/\0+$/, "");
    else if (REGULAR.has(type)) {
      const prefix = text(start - BLOCK + 345, 155);
      const name = longName ?? `${prefix === "" ? "" : `${prefix}/`}${text(start - BLOCK, 100)}`;
      files.set(name.replace(/^(\.\/)+/, ""), content);
      longName = undefined;
    }
  }
  throw broken("ends too early");
}

/** An archive of files whose names have at most 100 bytes. */
export function writeTar(files: ReadonlyMap<string, Uint8Array>): Uint8Array {
  const parts: Uint8Array[] = [];
  for (const [name, content] of files) {
    const header = new Uint8Array(BLOCK);
    const put = (at: number, value: string) => header.set(new TextEncoder().encode(value), at);
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, `${content.length.toString(8).padStart(11, "0")}\0`);
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    const sum = header.reduce((total, byte) => total + byte, 0);
    put(148, `${sum.toString(8).padStart(6, "0")}\0 `);
    parts.push(header, content, new Uint8Array((BLOCK - (content.length % BLOCK)) % BLOCK));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Octal digits, or for more than 8 GB a number in base 256 with the first bit set. */
function sizeOf(field: Uint8Array, digits: string): number {
  if (((field[0] ?? 0) & 0x80) !== 0) {
    return field.subarray(1).reduce((value, byte) => value * 256 + byte, 0);
  }
  const size = Number.parseInt(digits.trim() || "0", 8);
  if (Number.isInteger(size)) return size;
  throw broken("has a size that is no number");
}

function broken(what: string): OsmosisError {
  return new OsmosisError("VALIDATION", `The archive ${what}.`);
}

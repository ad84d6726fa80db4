import { readSync } from "node:fs";
import { OsmosisError } from "@osmosis/protocol";

/** Reads the header of a GGUF file front to back, little-endian; never beyond the file, never more than is there. */
export type Cursor = {
  /** Byte that is read next. */
  readonly position: () => number;
  readonly remaining: () => number;
  u8(): number;
  u32(): number;
  /** @throws OsmosisError `VALIDATION` for a number beyond 2^53. */
  u64(what: string): number;
  take(bytes: number, what: string): Buffer;
  /** A length in 8 bytes and that many bytes of UTF-8. */
  string(what: string): string;
  /** A count in 8 bytes, of things that take at least `itemBytes` each, so that a false one is refused here. */
  count(itemBytes: number, what: string): number;
};

const WINDOW_BYTES = 1 << 20;

export function openCursor(path: string, file: { readonly fd: number; readonly size: number }): Cursor {
  let window = Buffer.alloc(0);
  let windowStart = 0;
  let position = 0;

  const remaining = (): number => file.size - position;

  function take(bytes: number, what: string): Buffer {
    if (bytes > remaining()) {
      throw brokenGguf(
        path,
        `${what} takes ${bytes} bytes at byte ${position}, the file has ${file.size}: is it cut off?`,
      );
    }
    const end = position + bytes;
    if (position < windowStart || end > windowStart + window.length) {
      window = Buffer.alloc(Math.min(Math.max(bytes, WINDOW_BYTES), remaining()));
      windowStart = position;
      readFully(path, file.fd, window, position);
    }
    const slice = window.subarray(position - windowStart, end - windowStart);
    position = end;
    return slice;
  }

  function u64(what: string): number {
    const value = take(8, what).readBigUInt64LE();
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw brokenGguf(path, `${what} is ${value}`);
    return Number(value);
  }

  return {
    position: () => position,
    remaining,
    u8: () => take(1, "a byte").readUInt8(),
    u32: () => take(4, "a number").readUInt32LE(),
    u64,
    take,
    string: (what) => take(u64(`the length of ${what}`), what).toString("utf8"),
    count: (itemBytes, what) => {
      const count = u64(what);
      if (count * itemBytes > remaining()) {
        throw brokenGguf(
          path,
          `${what} is ${count}, more than the ${remaining()} bytes that follow can hold`,
        );
      }
      return count;
    },
  };
}

/** @throws OsmosisError `VALIDATION` when the file ends before the buffer is full. */
export function readFully(path: string, fd: number, buffer: Buffer, position: number): void {
  let done = 0;
  while (done < buffer.length) {
    const count = readSync(fd, buffer, done, Math.min(buffer.length - done, 2 ** 30), position + done);
    if (count === 0) throw brokenGguf(path, `it ended while byte ${position + done} was read`);
    done += count;
  }
}

export function brokenGguf(path: string, what: string): OsmosisError {
  return new OsmosisError("VALIDATION", `${path} is not a GGUF file that can be read: ${what}.`, {
    hint: "Download or export the file again.",
  });
}

import type { LogEntry } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { readEnd, readNewer, readOlder, type LogQuery } from "./log-lines.ts";

/** A log that pages as the platform's does: a cursor is the number of a line. */
function createLog(count: number) {
  const lines: LogEntry[] = [];
  const add = (more: number) => {
    for (let number = 0; number < more; number += 1) {
      lines.push({ timestamp: "", level: "info", step: "", message: String(lines.length + 1) });
    }
  };
  add(count);
  const load = async ({ limit = 50, direction = "older", cursor }: LogQuery) => {
    if (direction === "newer") {
      const from = Number(cursor ?? 0);
      const logs = lines.slice(from, from + limit);
      return { logs, next_cursor: String(from + logs.length) };
    }
    const end = cursor === undefined ? lines.length : Number(cursor) - 1;
    const start = Math.max(0, end - limit);
    return { logs: lines.slice(start, end), next_cursor: start > 0 ? String(start + 1) : null };
  };
  return { add, load };
}

const { signal } = new AbortController();
const numbers = (lines: readonly LogEntry[]): number[] => lines.map(({ message }) => Number(message));
const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

test.each([0, 1, 2, 200, 201, 202, 1000])(
  "the end of a log of %i lines is followed without a gap",
  async (count) => {
    const log = createLog(count);
    const end = await readEnd(log.load, signal);
    expect(numbers(end.lines)).toEqual(range(Math.max(1, count - 200), count));
    expect(await readNewer(log.load, end, signal)).toBe(end);
    log.add(450);
    const next = await readNewer(log.load, end, signal);
    expect(numbers(next.lines)).toEqual(range(Math.max(1, count - 200), count + 450));
  },
);

test("older pages join without a gap, down to the first line", async () => {
  const log = createLog(1000);
  const end = await readEnd(log.load, signal);
  let { lines, older } = end;
  while (older !== null) {
    const page = await readOlder(log.load, older, signal);
    lines = [...page.lines, ...lines];
    ({ older } = page);
  }
  expect(numbers(lines)).toEqual(range(1, 1000));
});

import type { DatasetRow, LogEntry } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { splitRows, warnAboutLeaks } from "./held-out.ts";

function rowOf(row_index: number, content: string, rest: Partial<DatasetRow> = {}): DatasetRow {
  return { row_index, messages: [{ role: "user", content }], label: null, metadata: null, ...rest };
}

test("the first rows are held out; later rows with the same prompt are not trained on, whatever their labels", () => {
  const rows = [
    rowOf(0, "2 times 3"),
    rowOf(1, "4 times 5"),
    rowOf(2, "2 times 3", { label: "7" }),
    rowOf(3, "6 times 7"),
    rowOf(4, "2 times 3", { metadata: { level: 2 } }),
    rowOf(5, "6 times 7"),
  ];
  const split = splitRows(rows, 2);
  expect(split.held.map(({ row_index }) => row_index)).toEqual([0, 1]);
  expect(split.leaked.map(({ row_index }) => row_index)).toEqual([2]);
  expect(rows.filter(split.isTrained).map(({ row_index }) => row_index)).toEqual([3, 4, 5]);
  const logs: Omit<LogEntry, "timestamp">[] = [];
  warnAboutLeaks(split, (entry) => void logs.push(entry));
  expect(logs).toEqual([
    expect.objectContaining({
      level: "warning",
      message: expect.stringMatching(/^1 rows have the prompt of a held-out row.*: 2\./),
    }),
  ]);
});

test("without held-out rows all are trained on, and nobody is warned", () => {
  const rows = [rowOf(0, "a"), rowOf(1, "a")];
  const split = splitRows(rows, 0);
  expect(rows.every(split.isTrained)).toBe(true);
  warnAboutLeaks(split, () => expect.unreachable());
});

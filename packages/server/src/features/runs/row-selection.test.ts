import { expect, test } from "vitest";
import { selectRows } from "./row-selection.ts";

test("a limit takes the first rows, at most all", () => {
  expect(selectRows(10, { limit: 3, seed: 0 })).toEqual([0, 1, 2]);
  expect(selectRows(2, { limit: 30, seed: 0 })).toEqual([0, 1]);
});

test.each([
  [4, 1],
  [9, 1],
  [10, 1],
  [100, 10],
  [1999, 199],
])("without a limit a tenth of %i rows is %i, ascending and distinct", (rowCount, expected) => {
  for (let seed = 0; seed < 20; seed += 1) {
    const rows = selectRows(rowCount, { limit: undefined, seed });
    expect(rows).toHaveLength(expected);
    expect(rows).toEqual([...new Set(rows)].toSorted((a, b) => a - b));
    expect(rows.every((row) => row >= 0 && row < rowCount)).toBe(true);
  }
});

test("the seed decides, and every row has its chance", () => {
  expect(selectRows(100, { limit: undefined, seed: 5 })).toEqual(
    selectRows(100, { limit: undefined, seed: 5 }),
  );
  const seen = new Set<number>();
  for (let seed = 0; seed < 500; seed += 1)
    for (const row of selectRows(50, { limit: undefined, seed })) seen.add(row);
  expect(seen.size).toBe(50);
});

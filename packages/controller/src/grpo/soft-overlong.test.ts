import { expect, test } from "vitest";
import { softOverlong } from "./soft-overlong.ts";

test.each([
  [80, 0],
  [85, -0.25],
  [90, -0.5],
  [100, -1],
  [101, -1],
])("an answer of %d tokens has the golden penalty", (tokens, penalty) => {
  expect(softOverlong(tokens, { limit: 100, cache: 20 })).toBe(penalty);
});

test("without a cache there is no penalty", () => {
  expect(softOverlong(100, { limit: 100, cache: 0 })).toBe(0);
});

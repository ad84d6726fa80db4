import { expect, test } from "vitest";
import { timeLeft } from "./wait.ts";

test("the time left follows the pace since the first progress, and runs down between two steps", () => {
  let now = 0;
  const estimate = timeLeft(() => now);
  expect(estimate(0, 10)).toBe("");
  // A minute of preparation does not count.
  now = 60_000;
  expect(estimate(1, 10)).toBe("");
  now = 62_000;
  expect(estimate(2, 10)).toBe("16s left");
  now = 63_000;
  expect(estimate(2, 10)).toBe("15s left");
  expect(estimate(10, 10)).toBe("");
});

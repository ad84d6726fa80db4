import { expect, test } from "vitest";
import { formatAge, formatDuration, formatNumber, formatShare } from "./format.ts";

test("durations read like a clock", () => {
  expect([12, 4200, 192_000, 7_500_000, 59_960].map(formatDuration)).toEqual([
    "12 ms",
    "4.2 s",
    "3 min 12 s",
    "2 h 05 min",
    "1 min 00 s",
  ]);
});

test("numbers keep three digits, and nothing is a dash", () => {
  expect([0.123_456, 12, 1234, 0.000_03, null].map(formatNumber)).toEqual([
    "0.123",
    "12",
    "1,234",
    "3.00e-5",
    "–",
  ]);
  expect(formatShare(0.925)).toBe("92.5 %");
});

test("an age is counted back from now", () => {
  const now = new Date("2026-03-04T12:00:00Z");
  expect(
    ["2026-03-04T11:59:30Z", "2026-03-04T11:30:00Z", "2026-03-04T02:00:00Z", "2026-02-01T00:00:00Z"].map(
      (iso) => formatAge(iso, now),
    ),
  ).toEqual(["just now", "30 min ago", "10 h ago", "2026-02-01"]);
});

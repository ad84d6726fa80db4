import { expect, test } from "vitest";
import {
  formatAge,
  formatBytes,
  formatConditions,
  formatDuration,
  formatEstimate,
  formatNumber,
  formatShare,
  formatTick,
} from "./format.ts";

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

test("numbers beside an axis are told from each other", () => {
  expect([0.0015, 0.1 + 0.2, 101.5, 12_500, 0].map(formatTick)).toEqual([
    "0.0015",
    "0.3",
    "101.5",
    "12,500",
    "0",
  ]);
  expect([1e-5, 2.5e-5, -1e-7].map(formatTick)).toEqual(["1e-5", "2.5e-5", "-1e-7"]);
});

test("an age is counted back from now", () => {
  const now = new Date("2026-03-04T12:00:00Z");
  expect(
    ["2026-03-04T11:59:30Z", "2026-03-04T11:30:00Z", "2026-03-04T02:00:00Z", "2026-02-01T00:00:00Z"].map(
      (iso) => formatAge(iso, now),
    ),
  ).toEqual(["just now", "30 min ago", "10 h ago", "2026-02-01"]);
});

test("sizes and guesses keep the digits that matter", () => {
  expect([0, 999, 3_646_977, 999_960, 2_500_000_000].map(formatBytes)).toEqual([
    "0 B",
    "999 B",
    "3.6 MB",
    "1.0 MB",
    "2.5 GB",
  ]);
  expect([200, 61_000, 400_000, 8_000_000].map(formatEstimate)).toEqual([
    "1 s",
    "61 s",
    "7 min",
    "2 h 13 min",
  ]);
});

test("a pass rate is told with its n and its temperature", () => {
  expect(formatConditions(1200, 0)).toBe("n = 1,200, T = 0 (greedy)");
  expect(formatConditions(8, 0.7)).toBe("n = 8, T = 0.7");
  expect(formatConditions(8, null)).toBe("n = 8, the provider's temperature");
  expect(formatConditions(undefined, undefined)).toBe("");
});

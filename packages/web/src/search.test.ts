import { expect, test } from "vitest";
import { localPath, readRunSearch } from "./search.ts";

test("what an address says wrongly is as if it said nothing", () => {
  expect(readRunSearch({ tab: "rollouts", step: 3, outcome: "agent", offset: 50 })).toEqual({
    tab: "rollouts",
    step: 3,
    outcome: "agent",
    offset: 50,
  });
  expect(readRunSearch({ tab: "nowhere", step: -1, outcome: "bad", offset: "x", more: 1 })).toEqual({});
});

test("a sign-in leads to a path of this dashboard only", () => {
  const paths = ["/a/training/b?tab=logs", "/", "//evil", "/\\evil", "/\t/evil", "https://evil", "evil", ""];
  expect(paths.map(localPath)).toEqual(["/a/training/b?tab=logs", "/", ...Array(6).fill(undefined)]);
  expect(localPath(undefined)).toBeUndefined();
});

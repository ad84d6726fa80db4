import { isScored, type RolloutOutcome } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { recordOf } from "../../test/records.ts";
import { drop, minViable, retry } from "./group-policy.ts";

const groupOf = (...outcomes: RolloutOutcome[]) =>
  outcomes.map((outcome) => recordOf({ outcome, reward: isScored(outcome) ? 1 : null }));

test.each([
  ["min_viable", minViable(2), 0],
  ["retry", retry(3, 2), 3],
])("%s trains with what is left of a group, if that is enough", (_, policy, retries) => {
  expect(policy.retries).toBe(retries);
  expect(policy.isViable(groupOf("ok", "truncated", "agent"))).toBe(true);
  expect(policy.isViable(groupOf("ok", "timeout", "agent"))).toBe(false);
});

test("drop leaves out every group with a failure, and repeats nothing", () => {
  expect(drop(2).retries).toBe(0);
  expect(drop(2).isViable(groupOf("ok", "truncated", "ok"))).toBe(true);
  expect(drop(2).isViable(groupOf("ok", "ok", "ok", "lost"))).toBe(false);
  expect(drop(4).isViable(groupOf("ok", "ok", "ok"))).toBe(false);
});

test("a sample that its grader took out is no failure, and has no reward to count", () => {
  const removed = recordOf({ outcome: "ok", reward: null });
  expect(drop(2).isViable([...groupOf("ok", "ok"), removed])).toBe(true);
  expect(minViable(2).isViable([...groupOf("ok"), removed])).toBe(false);
});

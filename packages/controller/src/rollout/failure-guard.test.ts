import { expect, test } from "vitest";
import { recordOf } from "../../test/records.ts";
import { failureGuard } from "./failure-guard.ts";

const failure = (outcome: "timeout" | "agent", error = "why") => recordOf({ outcome, error, reward: null });

test("a run stops after so many failures in a row of one class, with the class, its message and what to do", () => {
  const guard = failureGuard(3);
  const said = [failure("timeout"), failure("timeout"), failure("timeout", "It took too long.")].map(guard);
  expect(said.slice(0, 2)).toEqual([undefined, undefined]);
  expect(said[2]).toMatch(
    /^3 rollouts in a row ended with the outcome timeout; the last one said: It took too long\. What to do: Raise agent_workflow_timeout_s/,
  );
});

test("a success, or a failure of another class, begins the count anew", () => {
  const guard = failureGuard(3);
  const order = ["timeout", "timeout", "agent", "timeout", "agent", "agent"] as const;
  expect(order.map((outcome) => guard(failure(outcome)))).toEqual(order.map(() => undefined));
  expect(guard(recordOf())).toBeUndefined();
  expect([failure("agent"), failure("agent")].map(guard)).toEqual([undefined, undefined]);
  expect(guard(failure("agent"))).toContain("agent");
});

test("rollouts that ended well are no failures, however many there are", () => {
  const guard = failureGuard(1);
  expect([recordOf(), recordOf({ outcome: "truncated" }), recordOf()].map(guard)).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});

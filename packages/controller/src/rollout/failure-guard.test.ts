import { expect, test } from "vitest";
import { recordOf } from "../../test/records.ts";
import { failureGuard, noneScored } from "./failure-guard.ts";

const failure = (outcome: "timeout" | "agent" | "lost", error = "why") =>
  recordOf({ outcome, error, reward: null });

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

test("what was lost with a server counts neither as a failure nor as a success", () => {
  const lost = (id: string) => recordOf({ outcome: "lost", error: "gone", reward: null, rollout_id: id });
  const guard = failureGuard(2, ({ rollout_id: id }) => id === "with the server");
  expect([lost("a"), lost("with the server"), lost("with the server")].map(guard)).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
  expect(guard(lost("b"))).toContain("2 rollouts in a row ended with the outcome lost");
});

test("why nothing was scored is counted by its class, also where each message names an address of its own", () => {
  const refused = (id: number, tokens: number) =>
    failure("agent", `http://127.0.0.1:4000/rollouts/r${id} answered 400: The prompt has ${tokens} tokens.`);
  const rollouts = [
    failure("timeout"),
    refused(1, 9),
    refused(2, 56),
    refused(3, 56),
    failure("agent", "odd"),
  ];
  expect(noneScored(rollouts)).toBe(
    "None of the 5 rollouts has a reward. Most often (4) they ended with agent: " +
      "http://127.0.0.1:4000/rollouts/r2 answered 400: The prompt has 56 tokens.",
  );
  expect(noneScored([...rollouts, recordOf()])).toBeUndefined();
  const lost = [failure("lost", "The server died."), failure("lost", "The server died.")];
  const isExcused = ({ outcome }: { outcome: string }) => outcome === "lost";
  expect(noneScored(lost)).toContain("None of the 2 rollouts has a reward.");
  expect(noneScored(lost, isExcused)).toBeUndefined();
  expect(noneScored([...lost, failure("agent")], isExcused)).toContain("(1) they ended with agent: why");
});

import { expect, test } from "vitest";
import { deadlineOf } from "./deadline.ts";

test("a deadline aborts with the first of its signals, at once when one has aborted already", () => {
  const [a, b] = [new AbortController(), new AbortController()];
  using deadline = deadlineOf([a.signal, b.signal], 60_000);
  expect(deadline.signal.aborted).toBe(false);
  b.abort(new Error("b"));
  a.abort(new Error("a"));
  expect(deadline.signal.reason).toEqual(new Error("b"));
  expect(deadline.expired()).toBe(false);
  using late = deadlineOf([a.signal]);
  expect(late.signal.reason).toEqual(new Error("a"));
});

test("a deadline expires, and says so", async () => {
  using deadline = deadlineOf([new AbortController().signal], 5.5);
  await new Promise((resolve) => deadline.signal.addEventListener("abort", resolve));
  expect(deadline.expired()).toBe(true);
  expect(deadline.signal.reason).toMatchObject({ name: "TimeoutError" });
});

test("a deadline that is let go aborts no more", () => {
  const controller = new AbortController();
  const deadline = deadlineOf([controller.signal], 60_000);
  deadline[Symbol.dispose]();
  controller.abort();
  expect(deadline.signal.aborted).toBe(false);
});

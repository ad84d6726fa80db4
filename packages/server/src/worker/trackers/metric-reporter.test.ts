import { systemClock } from "@osmosis/controller";
import { OsmosisError } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { openMetricReporter } from "./metric-reporter.ts";
import { stepOf } from "./testing.ts";
import { TrackerRefused, type TrackedStep, type Tracker } from "./tracker.ts";

const quick = { callMs: 200, endMs: 300, firstPauseMs: 1, capacity: 20 };

function reporterOf(
  changes: Partial<Tracker> = {},
  more: { earlier?: readonly TrackedStep[]; limits?: Partial<typeof quick> } = {},
) {
  const calls: unknown[] = [];
  const logs: string[] = [];
  const tracker: Tracker = {
    name: "a tracker",
    open: async () => ({ lastStep: 0 }),
    add: async (steps) => void calls.push(steps.map(({ step }) => step)),
    end: async (status) => void calls.push(status),
    ...changes,
  };
  const reporter = openMetricReporter({
    tracker,
    stepsAfter: async (last) => (more.earlier ?? []).filter(({ step }) => step > last),
    log: (level, message) => logs.push(`${level}: ${message}`),
    clock: systemClock,
    limits: { ...quick, ...more.limits },
  });
  return { reporter, calls, logs, steps: () => calls.filter(Array.isArray).flat() };
}

const warnings = (logs: readonly string[]) => logs.filter((line) => line.startsWith("warning"));
const hang = (_: unknown, signal: AbortSignal) =>
  new Promise<never>((_resolve, reject) =>
    signal.addEventListener("abort", () => reject(new Error("timed out"))),
  );

test("steps arrive once, in order, and the end after them", async () => {
  const { reporter, calls, steps, logs } = reporterOf();
  await using _ = reporter;
  for (let step = 1; step <= 7; step++) reporter.add(stepOf(step));
  await reporter.end("finished");
  expect(steps()).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(calls.at(-1)).toBe("finished");
  expect(warnings(logs)).toEqual([]);
});

test("a run that goes on in another life doubles no step and leaves none out", async () => {
  const earlier = [1, 2, 3, 4, 5].map((step) => stepOf(step));
  const { reporter, steps, logs } = reporterOf({ open: async () => ({ lastStep: 3 }) }, { earlier });
  await using _ = reporter;
  reporter.add(stepOf(6));
  // Committed before, and told again: the worker did not hear of it.
  reporter.add(stepOf(6));
  await reporter.end("stopped");
  expect(steps()).toEqual([4, 5, 6]);
  expect(logs[0]).toBe("info: The metrics go to a tracker, too, from step 4 on.");
});

test("what gets no answer is asked again, and nothing is lost", async () => {
  let failures = 3;
  const flaky = reporterOf({
    async open() {
      if (failures-- > 0) throw new OsmosisError("NETWORK", "away");
      return { lastStep: 0 };
    },
  });
  await using _ = flaky.reporter;
  flaky.reporter.add(stepOf(1));
  await flaky.reporter.end("finished");
  expect(flaky.steps()).toEqual([1]);
  expect(warnings(flaky.logs)).toEqual([]);
});

test("a tracker that refuses is asked no more, and the log says so once", async () => {
  let asked = 0;
  const { reporter, logs } = reporterOf({
    async add() {
      asked += 1;
      throw new TrackerRefused("answered 403: no");
    },
  });
  await using _ = reporter;
  reporter.add(stepOf(1));
  await new Promise((resolve) => setTimeout(resolve, 30));
  for (let step = 2; step < 50; step++) reporter.add(stepOf(step));
  await reporter.end("finished");
  expect(asked).toBe(1);
  expect(warnings(logs)).toEqual([
    "warning: a tracker gets no more metrics of this run, which goes on: answered 403: no",
  ]);
});

test("a tracker that hangs holds up neither a step nor, for long, the end", async () => {
  const { reporter, logs } = reporterOf({ add: hang }, { limits: { callMs: 60_000, endMs: 100 } });
  await using _ = reporter;
  const before = performance.now();
  for (let step = 1; step <= 5; step++) reporter.add(stepOf(step));
  expect(performance.now() - before).toBeLessThan(50);
  await reporter.end("finished");
  expect(performance.now() - before).toBeLessThan(1000);
  expect(warnings(logs)).toEqual([
    "warning: a tracker was too slow at the end of the run: its last steps may be missing there.",
  ]);
});

test("while a tracker is slow, a bounded number of steps waits, and the missing ones are told", async () => {
  const opened = Promise.withResolvers<{ lastStep: number }>();
  const { reporter, steps, logs } = reporterOf(
    { open: () => opened.promise },
    { limits: { callMs: 60_000 } },
  );
  await using _ = reporter;
  for (let step = 1; step <= 25; step++) reporter.add(stepOf(step));
  opened.resolve({ lastStep: 0 });
  await reporter.end("finished");
  expect(steps()).toEqual(Array.from({ length: 20 }, (_, index) => index + 6));
  expect(warnings(logs)).toEqual(["warning: 5 steps are missing in a tracker: it took them too slowly."]);
});

test("a run that is given up by its worker is left open in the tracker", async () => {
  const { reporter, calls, logs } = reporterOf();
  reporter.add(stepOf(1));
  await new Promise((resolve) => setTimeout(resolve, 30));
  await reporter[Symbol.asyncDispose]();
  expect(calls).toEqual([[1]]);
  expect(warnings(logs)).toEqual([]);
});

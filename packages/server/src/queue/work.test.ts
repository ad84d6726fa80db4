import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabase } from "../database/testing.ts";
import { until } from "../testing-workspace.ts";
import { createBell } from "./bell.ts";
import { openQueue, type Queue } from "./queue.ts";
import { work, type WorkOptions } from "./work.ts";

withDatabase("work in the background", (database) => {
  let queue: Queue;
  const logged: string[] = [];
  beforeAll(async () => {
    queue = await openQueue({
      database: database(),
      queues: ["chores"],
      onError: (error) => logged.push(error.message),
    });
  });
  afterAll(() => queue?.[Symbol.asyncDispose]());

  const begin = (options: Pick<WorkOptions, "handle"> & Partial<WorkOptions>) =>
    work({ queue, log: ({ message }) => logged.push(message) }, "chores", {
      bell: createBell(),
      async onGivenUp() {},
      ...options,
    });

  test("a bell wakes the worker, and each job is done once", async () => {
    const done: unknown[] = [];
    const bell = createBell();
    await using _working = begin({ bell, handle: async (payload) => void done.push(payload) });
    await queue.enqueue("chores", { n: 1 });
    await queue.enqueue("chores", { n: 2 });
    bell.ring();
    await until(() => done.length === 2);
    expect(done).toEqual([{ n: 1 }, { n: 2 }]);
    expect(await queue.claim("chores")).toBeUndefined();
  });

  test("a job that always fails is given up with its last error, and the next one is done", async () => {
    let attempts = 0;
    const givenUp: string[] = [];
    const done: unknown[] = [];
    await queue.enqueue("chores", { bad: true }, { priority: 1 });
    await queue.enqueue("chores", { bad: false });
    await using _working = begin({
      async handle(payload) {
        if ((payload as { bad: boolean }).bad) throw new Error(`attempt ${(attempts += 1)}`);
        done.push(payload);
      },
      onGivenUp: async (_payload, error) => void givenUp.push(String(error)),
    });
    await until(() => done.length === 1);
    expect(givenUp).toEqual(["Error: attempt 5"]);
    expect(logged.filter((line) => line.includes("attempt"))).toHaveLength(5);
  });

  test("what is under way when the server stops is done after it has started again", async () => {
    const started = Promise.withResolvers<void>();
    await queue.enqueue("chores", { long: true });
    {
      await using _working = begin({
        async handle(_payload, signal) {
          started.resolve();
          await new Promise((_, reject) =>
            signal.addEventListener("abort", () => reject(new Error("stopped"))),
          );
        },
      });
      await started.promise;
    }
    const done: unknown[] = [];
    await using _again = begin({ handle: async (payload) => void done.push(payload) });
    await until(() => done.length === 1);
    expect(done).toEqual([{ long: true }]);
  });
});

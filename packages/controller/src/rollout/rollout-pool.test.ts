import { expect, test } from "vitest";
import { openRolloutPool } from "./rollout-pool.ts";

const { signal } = new AbortController();

test("no more work runs than there are places, and the smallest rank goes first, then the first come", async () => {
  const pool = openRolloutPool(2);
  const begun: string[] = [];
  const gates = new Map<string, () => void>();
  const work = (name: string, rank: number) =>
    pool.run({ rank, signal }, async () => {
      begun.push(name);
      await new Promise<void>((resolve) => gates.set(name, resolve));
      return name;
    });
  const all = Promise.all([
    work("a", 5),
    work("b", 5),
    work("c", 7),
    work("d", 6),
    work("e", 6),
    work("f", 1),
  ]);
  await Promise.resolve();
  expect(begun).toEqual(["a", "b"]);
  for (const name of ["a", "f", "d", "b", "e", "c"]) {
    await expect.poll(() => gates.has(name)).toBe(true);
    expect(pool.running()).toBeLessThanOrEqual(2);
    gates.get(name)?.();
  }
  expect(await all).toEqual(["a", "b", "c", "d", "e", "f"]);
  expect(begun).toEqual(["a", "b", "f", "d", "e", "c"]);
  expect(pool.running()).toBe(0);
});

test("work that waits leaves when its signal aborts, and takes no place; work that fails gives its place up", async () => {
  const pool = openRolloutPool(1);
  const controller = new AbortController();
  const gate = Promise.withResolvers<void>();
  const first = pool.run({ rank: 0, signal }, () => gate.promise);
  const leaving = pool.run({ rank: 1, signal: controller.signal }, () => Promise.resolve("never"));
  const failing = pool.run({ rank: 2, signal }, () => Promise.reject(new Error("no")));
  const last = pool.run({ rank: 3, signal }, () => Promise.resolve("last"));
  controller.abort(new Error("enough"));
  await expect(leaving).rejects.toThrow("enough");
  gate.resolve();
  await first;
  await expect(failing).rejects.toThrow("no");
  expect(await last).toBe("last");
  await expect(pool.run({ rank: 0, signal: controller.signal }, () => Promise.resolve())).rejects.toThrow(
    "enough",
  );
  expect(pool.running()).toBe(0);
});

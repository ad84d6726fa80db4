import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Database } from "../database/open.ts";
import { withDatabase } from "../database/testing.ts";
import { openQueue, type Queue } from "./queue.ts";

withDatabase("the queue", (database) => {
  let queue: Queue;
  const errors: Error[] = [];

  beforeAll(async () => {
    queue = await openQueue({
      database: database(),
      queues: ["a", "b", "c", "d", "e", "f"],
      onError: (error) => errors.push(error),
    });
  });
  afterAll(async () => {
    await queue[Symbol.asyncDispose]();
    expect(errors).toEqual([]);
  });

  test("hands out each job once, the important one first, and nothing when empty", async () => {
    await queue.enqueue("a", { n: 1 });
    await queue.enqueue("a", { n: 2 });
    await queue.enqueue("a", { n: 3 }, { priority: 9 });
    const payloads = [];
    for (let job = await queue.claim("a"); job !== undefined; job = await queue.claim("a")) {
      payloads.push(job.payload);
      expect(await queue.complete(job)).toBe(true);
    }
    expect(payloads).toEqual([{ n: 3 }, { n: 1 }, { n: 2 }]);
  });

  test("queues a job with an id once", async () => {
    const id = randomUUID();
    await queue.enqueue("b", { first: true }, { id });
    await queue.enqueue("b", { first: false }, { id });
    expect(await queue.claim("b")).toEqual({ queue: "b", id, attempt: 0, payload: { first: true } });
    expect(await queue.claim("b")).toBeUndefined();
  });

  test("a job of a rolled back transaction was never queued", async () => {
    const attempt = database()
      .db.transaction()
      .execute(async (trx) => {
        await queue.enqueue("c", {}, { transaction: trx });
        throw new Error("stop");
      });
    await expect(attempt).rejects.toThrow("stop");
    expect(await queue.claim("c")).toBeUndefined();
  });

  test("a job whose caller went silent is handed out again, and the old caller is told", async () => {
    await queue.enqueue("d", { n: 1 });
    const first = await queue.claim("d");
    if (first === undefined) throw new Error("nothing to claim");
    expect(await queue.touch(first)).toBe(true);
    await passLease(database(), first.id);
    await queue.sweep();
    const second = await queue.claim("d");
    expect(second).toEqual({ ...first, attempt: 1 });
    expect(await queue.touch(first)).toBe(false);
    expect(await queue.complete(first)).toBe(false);
    expect(second !== undefined && (await queue.complete(second))).toBe(true);
  });

  test("a failed job comes again only if it may", async () => {
    await queue.enqueue("e", {});
    const first = await queue.claim("e");
    if (first === undefined) throw new Error("nothing to claim");
    expect(await queue.fail(first, "try again", { retry: true })).toBe(true);
    const second = await queue.claim("e");
    if (second === undefined) throw new Error("nothing to claim");
    expect(await queue.fail(second, "enough")).toBe(true);
    expect(await queue.claim("e")).toBeUndefined();
  });

  test("a cancelled job is not handed out, and whoever works on it is told", async () => {
    const id = randomUUID();
    await queue.enqueue("f", {}, { id });
    const job = await queue.claim("f");
    await queue.cancel("f", id);
    expect(job !== undefined && (await queue.touch(job))).toBe(false);
    expect(await queue.claim("f")).toBeUndefined();
  });
});

/** Makes a lease look a minute old, and the leases due to be looked at. */
async function passLease({ db }: Database, id: string): Promise<void> {
  await sql`update pgboss.job set heartbeat_on = now() - interval '1 minute' where id = ${id}`.execute(db);
  await sql`update pgboss.queue set monitor_on = null`.execute(db);
}

import { setTimeout as sleep } from "node:timers/promises";
import { errorMessage } from "@osmosis/protocol";
import type { Log } from "../platform.ts";
import type { Bell } from "./bell.ts";
import { LEASE_SECONDS, type Job, type Queue } from "./queue.ts";

/** A job that failed so often is given up; `onGivenUp` has the last word. */
const MAX_ATTEMPTS = 5;

export type WorkOptions = {
  readonly handle: (payload: unknown, signal: AbortSignal) => Promise<void>;
  /** Records for users that the job will never be done. */
  readonly onGivenUp: (payload: unknown, error: unknown) => Promise<void>;
  /** Rung when a job was queued; without a ring an empty queue is looked at every second. */
  readonly bell: Bell;
};

/**
 * Works on the jobs of a queue inside this process, one after the other, until it is disposed. A handler may be cut
 * short at any point and is then called again, here or elsewhere.
 */
export function work(
  parts: { readonly queue: Queue; readonly log: Log },
  queueName: string,
  options: WorkOptions,
): AsyncDisposable {
  const { queue, log } = parts;
  const closing = new AbortController();
  const { signal } = closing;

  async function loop(): Promise<void> {
    while (!signal.aborted) {
      try {
        const job = await queue.claim(queueName);
        if (job !== undefined) await workOn(job);
        else await options.bell.wait(1000, signal);
      } catch (error) {
        if (signal.aborted) return;
        log({ level: "error", message: `The queue ${queueName} could not be read: ${errorMessage(error)}` });
        await sleep(1000, undefined, { signal }).catch(() => {});
      }
    }
  }

  async function workOn(job: Job): Promise<void> {
    if (job.attempt >= MAX_ATTEMPTS) {
      // Attempts that told no reason died with their process.
      const reason = new Error("every attempt ended with the process that made it");
      await options.onGivenUp(job.payload, reason);
      await queue.fail(job, reason.message);
      return;
    }
    const lost = new AbortController();
    const beat = setInterval(
      () => {
        queue.touch(job).then(
          (isOurs) => isOurs || lost.abort(new Error("another attempt works on the job")),
          (error: unknown) => lost.abort(error),
        );
      },
      (LEASE_SECONDS * 1000) / 4,
    );
    try {
      await options.handle(job.payload, AbortSignal.any([signal, lost.signal]));
      await queue.complete(job);
    } catch (error) {
      if (lost.signal.aborted) return;
      if (signal.aborted) {
        await queue.fail(job, "the server stops", { retry: true });
        return;
      }
      const isLast = job.attempt + 1 >= MAX_ATTEMPTS;
      log({
        level: "error",
        message: `A job of the queue ${queueName} failed: ${errorMessage(error)}`,
        job: job.id,
        stack: error instanceof Error ? error.stack : undefined,
      });
      if (isLast) await options.onGivenUp(job.payload, error);
      else await sleep(1000, undefined, { signal }).catch(() => {});
      await queue.fail(job, errorMessage(error), { retry: !isLast });
    } finally {
      clearInterval(beat);
    }
  }

  const done = loop();
  return {
    async [Symbol.asyncDispose]() {
      closing.abort(new Error("the server stops"));
      await done;
    },
  };
}

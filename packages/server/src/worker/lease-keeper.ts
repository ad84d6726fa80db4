import { setTimeout as sleep } from "node:timers/promises";
import { LeaseLost } from "./platform-call.ts";

/** Why a run ended from outside. */
export class StopRequested extends Error {
  override readonly name = "StopRequested";
}

export type LeaseKeeper = AsyncDisposable & {
  /** Aborted with `StopRequested`, `LeaseLost`, or the outer signal's reason. */
  readonly signal: AbortSignal;
};

const WATCH_MS = 500;

/**
 * Renews the lease of a run or a share about four times per lease, and aborts the signal when somebody asked for the end
 * or when the lease is gone. A process that was paused for longer than the lease knows so before it asks anybody: its
 * clock has jumped. So it stops what it does elsewhere, too, where nobody checks the lease.
 */
export function keepLease(options: {
  readonly link: { heartbeat(signal: AbortSignal): Promise<{ stop_requested: boolean }> };
  readonly leaseSeconds: number;
  /** Milliseconds of a clock that goes on while this process is paused. */
  readonly now: () => number;
  readonly signal: AbortSignal;
}): LeaseKeeper {
  const run = new AbortController();
  const closing = new AbortController();
  const inner = AbortSignal.any([options.signal, run.signal]);
  const pauseMs = (options.leaseSeconds * 1000) / 4;

  const beating = (async () => {
    while (!closing.signal.aborted && !inner.aborted) {
      await sleep(pauseMs, undefined, { signal: AbortSignal.any([closing.signal, inner]) });
      const { stop_requested } = await options.link.heartbeat(inner);
      if (stop_requested) run.abort(new StopRequested("somebody asked for the end of the run"));
    }
  })().catch((error: unknown) => {
    if (closing.signal.aborted || inner.aborted) return;
    run.abort(
      error instanceof LeaseLost ? error : new LeaseLost("the lease could not be renewed", { cause: error }),
    );
  });

  let seenAt = options.now();
  const watch = setInterval(() => {
    const pausedMs = options.now() - seenAt;
    seenAt += pausedMs;
    if (pausedMs < options.leaseSeconds * 1000 || inner.aborted) return;
    run.abort(
      new LeaseLost(`the worker was paused for ${Math.round(pausedMs / 1000)} s, and its lease is gone`),
    );
  }, WATCH_MS);

  return {
    signal: inner,
    async [Symbol.asyncDispose]() {
      clearInterval(watch);
      closing.abort();
      await beating;
    },
  };
}

import { setTimeout as sleep } from "node:timers/promises";
import { LeaseLost, type RunLink } from "./platform-link.ts";

/** Why a run ended from outside. */
export class StopRequested extends Error {
  override readonly name = "StopRequested";
}

export type LeaseKeeper = AsyncDisposable & {
  /** Aborted with `StopRequested`, `LeaseLost`, or the outer signal's reason. */
  readonly signal: AbortSignal;
};

/**
 * Renews the lease of a run about four times per lease, and aborts the run's signal when somebody asked for its end or
 * when the lease is gone.
 */
export function keepLease(options: {
  readonly link: Pick<RunLink, "heartbeat">;
  readonly leaseSeconds: number;
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

  return {
    signal: inner,
    async [Symbol.asyncDispose]() {
      closing.abort();
      await beating;
    },
  };
}

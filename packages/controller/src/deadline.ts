/** The longest that a timer can wait. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * A signal that aborts when one of `signals` does, or after `timeoutMs`. Held by `using`: what it hangs on the signals,
 * which may live for a whole run, goes when the work that it bounds is over.
 */
export type Deadline = Disposable & {
  readonly signal: AbortSignal;
  /** True when the time was up before any of the signals aborted. */
  expired(): boolean;
};

export function deadlineOf(signals: readonly AbortSignal[], timeoutMs = Infinity): Deadline {
  const controller = new AbortController();
  let expired = false;
  const expire = () => {
    expired = !controller.signal.aborted;
    controller.abort(new DOMException("It took too long.", "TimeoutError"));
  };
  const timer =
    timeoutMs === Infinity ? undefined : setTimeout(expire, Math.min(Math.ceil(timeoutMs), LONGEST_TIMER_MS));
  const handlers = signals.map((signal) => {
    const abort = () => controller.abort(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    return () => signal.removeEventListener("abort", abort);
  });
  return {
    signal: controller.signal,
    expired: () => expired,
    [Symbol.dispose]() {
      clearTimeout(timer);
      for (const remove of handlers) remove();
    },
  };
}

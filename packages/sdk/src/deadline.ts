/** How bounded work ended. `stopped` is false when it did not react to the abort within the grace. */
export type Bounded<T> =
  | { readonly type: "value"; readonly value: T }
  | { readonly type: "error"; readonly error: unknown }
  | { readonly type: "timeout"; readonly stopped: boolean }
  | { readonly type: "cancelled"; readonly reason: unknown; readonly stopped: boolean };

export type Bounds = {
  /** Null means unbounded; 0 or less is over before it starts. */
  readonly timeoutMs: number | null;
  /** Ends the work early. */
  readonly signal: AbortSignal;
  /** How long work may take to come to an end once it was asked to. */
  readonly graceMs: number;
  /** Milliseconds of a clock that never jumps. */
  readonly now: () => number;
};

/** The longest that a timer can wait. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Runs `work` until it ends, its time is over, or it is cancelled; in the last two cases the signal that it gets aborts. A
 * result that comes after the deadline is a timeout, whenever the timer fires.
 */
export async function withDeadline<T>(
  work: (signal: AbortSignal) => Promise<T> | T,
  bounds: Bounds,
): Promise<Bounded<T>> {
  const { timeoutMs, signal, graceMs, now } = bounds;
  if (signal.aborted) return { type: "cancelled", reason: signal.reason, stopped: true };
  if (timeoutMs !== null && timeoutMs <= 0) return { type: "timeout", stopped: true };

  const deadline = timeoutMs === null ? Infinity : now() + timeoutMs;
  const controller = new AbortController();
  const interrupted = Promise.withResolvers<"timeout" | "cancelled">();
  const cancel = () => {
    interrupted.resolve("cancelled");
    controller.abort(signal.reason);
  };
  const expire = () => {
    interrupted.resolve("timeout");
    controller.abort(new DOMException("The deadline has passed.", "TimeoutError"));
  };
  signal.addEventListener("abort", cancel, { once: true });
  const timer =
    timeoutMs === null || timeoutMs > LONGEST_TIMER_MS ? undefined : setTimeout(expire, timeoutMs);

  const settled = settle(work, controller.signal);
  try {
    const first = await Promise.race([settled, interrupted.promise]);
    if (typeof first === "object") {
      return now() > deadline ? { type: "timeout", stopped: true } : first;
    }
    const stopped = await settlesWithin(settled, graceMs);
    return first === "timeout"
      ? { type: "timeout", stopped }
      : { type: "cancelled", reason: signal.reason, stopped };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", cancel);
  }
}

async function settle<T>(
  work: (signal: AbortSignal) => Promise<T> | T,
  signal: AbortSignal,
): Promise<Extract<Bounded<T>, { type: "value" | "error" }>> {
  try {
    return { type: "value", value: await work(signal) };
  } catch (error) {
    return { type: "error", error };
  }
}

async function settlesWithin(settled: Promise<unknown>, graceMs: number): Promise<boolean> {
  const grace = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => grace.resolve(false), graceMs);
  try {
    return await Promise.race([settled.then(() => true), grace.promise]);
  } finally {
    clearTimeout(timer);
  }
}

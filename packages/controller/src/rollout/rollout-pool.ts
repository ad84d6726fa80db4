/**
 * The places for rollouts in flight, of all steps and of validation together. A free place goes to the waiting work with
 * the smallest rank; among equals, to the one that came first.
 */
export type RolloutPool = {
  /**
   * Does the work as soon as there is a place.
   *
   * @throws the signal's reason when it aborts before the work has begun, and whatever the work throws.
   */
  run<Result>(
    place: { readonly rank: number; readonly signal: AbortSignal },
    work: () => Promise<Result>,
  ): Promise<Result>;
  /** Pieces of work that have a place. */
  running(): number;
};

export function openRolloutPool(size: number): RolloutPool {
  let running = 0;
  /** By rank, then by arrival. */
  const waiting: { readonly rank: number; readonly enter: () => void }[] = [];

  function enter(rank: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (running < size) {
      running += 1;
      return Promise.resolve();
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const entry = { rank, enter: resolve };
    const position = waiting.findLastIndex((other) => other.rank <= rank) + 1;
    waiting.splice(position, 0, entry);
    const leave = (): void => {
      const index = waiting.indexOf(entry);
      if (index < 0) return;
      waiting.splice(index, 1);
      reject(signal.reason);
    };
    signal.addEventListener("abort", leave, { once: true });
    return promise.finally(() => signal.removeEventListener("abort", leave));
  }

  /** The place goes over to the next one, or becomes free. */
  function pass(): void {
    const next = waiting.shift();
    if (next === undefined) running -= 1;
    else next.enter();
  }

  return {
    async run({ rank, signal }, work) {
      await enter(rank, signal);
      try {
        signal.throwIfAborted();
        return await work();
      } finally {
        pass();
      }
    },
    running: () => running,
  };
}

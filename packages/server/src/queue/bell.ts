/** Wakes whoever waits for work of one kind inside this process, so that nobody has to look often. */
export interface Bell {
  ring(): void;
  /** Returns at the next ring, after `milliseconds`, or when the signal aborts. */
  wait(milliseconds: number, signal: AbortSignal): Promise<void>;
}

export function createBell(): Bell {
  const waiting = new Set<() => void>();
  return {
    ring() {
      for (const wake of waiting) wake();
    },
    async wait(milliseconds, signal) {
      if (signal.aborted) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, milliseconds);
      waiting.add(resolve);
      signal.addEventListener("abort", () => resolve(), { once: true });
      try {
        await promise;
      } finally {
        clearTimeout(timer);
        waiting.delete(resolve);
      }
    },
  };
}

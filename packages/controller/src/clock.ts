/** Time, handed in so that tests can hold it. */
export type Clock = {
  /** Milliseconds from a fixed moment; never jumps backwards. */
  readonly now: () => number;
  /** Resolves after `ms` milliseconds; rejects with the signal's reason as soon as it aborts. */
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
};

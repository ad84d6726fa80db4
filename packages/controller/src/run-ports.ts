import type { LogEntry, RolloutRecord } from "@osmosis/protocol";

/** What every run tells its keeper. */
export type RunPorts = {
  /** Resolves when the rollouts are durable; before that they do not count. */
  readonly record: (rollouts: readonly RolloutRecord[]) => Promise<void>;
  /** `step` names the phase that speaks. */
  readonly log: (entry: Omit<LogEntry, "timestamp">) => void;
};

/** How a run ended by itself. A run whose signal aborts rejects with the signal's reason instead. */
export type RunEnd =
  | { readonly status: "finished" }
  /** The run stopped itself; `error` says why and what to do, for a person. */
  | { readonly status: "failed"; readonly error: string };

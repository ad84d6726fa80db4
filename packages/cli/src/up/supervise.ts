import { setTimeout as delay } from "node:timers/promises";
import type { Child, Ending } from "./child.ts";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
/** A child that ran so long was well; its next death begins a new count. */
const WELL_AFTER_MS = 60_000;
const MOST_FAILURES = 10;

/** A child that is started again when it dies. */
export type Supervised = {
  /** Resolves when the child died ten times in a row, or at once after an end that is final. */
  readonly givenUp: Promise<Ending>;
  readonly stop: (graceMs: number) => Promise<void>;
};

/**
 * Starts a child, and starts it again whenever it ends without being asked to, after a pause that doubles from half a
 * second to half a minute.
 */
export function supervise(options: {
  readonly start: () => Child;
  readonly now: () => number;
  /** Whether it is of no use to start again after such an end. */
  readonly isFinal?: (ending: Ending) => boolean;
  readonly onRestart: (ending: Ending, pauseMs: number) => void;
}): Supervised {
  const { start, now, onRestart } = options;
  const stopping = new AbortController();
  let child: Child | undefined;
  const givenUp = Promise.withResolvers<Ending>();

  const loop = async (): Promise<void> => {
    let failures = 0;
    while (!stopping.signal.aborted) {
      const startedAt = now();
      child = start();
      const ending = await child.ended;
      if (stopping.signal.aborted) return;
      failures = now() - startedAt > WELL_AFTER_MS ? 1 : failures + 1;
      if (failures >= MOST_FAILURES || options.isFinal?.(ending) === true) {
        givenUp.resolve(ending);
        return;
      }
      const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
      onRestart(ending, pauseMs);
      await delay(pauseMs, undefined, { signal: stopping.signal }).catch(() => {});
    }
  };
  const running = loop();

  return {
    givenUp: givenUp.promise,
    async stop(graceMs) {
      stopping.abort();
      await child?.stop(graceMs);
      await running;
    },
  };
}

/** `exit code 1`, `signal SIGKILL`. */
export function endingText({ code, signal }: Ending): string {
  return signal === null ? `exit code ${code ?? "unknown"}` : `signal ${signal}`;
}

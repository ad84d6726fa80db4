import { setTimeout as sleep } from "node:timers/promises";
import { errorMessage } from "@osmosis/protocol";
import type { Log } from "./platform.ts";

const HOUR_MS = 3600_000;

/** Does something now and every hour, until it is disposed. What it throws is logged: the next hour is another chance. */
export function everyHour(
  what: string,
  parts: { readonly log: Log; readonly work: (signal: AbortSignal) => Promise<void> },
): AsyncDisposable {
  const closing = new AbortController();
  const done = (async () => {
    while (!closing.signal.aborted) {
      try {
        await parts.work(closing.signal);
      } catch (error) {
        if (!closing.signal.aborted)
          parts.log({ level: "error", message: `${what} failed: ${errorMessage(error)}` });
      }
      await sleep(HOUR_MS, undefined, { signal: closing.signal }).catch(() => {});
    }
  })();
  return {
    async [Symbol.asyncDispose]() {
      closing.abort();
      await done;
    },
  };
}

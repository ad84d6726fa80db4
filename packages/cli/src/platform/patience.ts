import { setTimeout as delay } from "node:timers/promises";
import { OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";

/** So long a platform may not answer, for example because it is restarted, before waiting for it is given up. */
const PATIENCE_MS = 180_000;
const PAUSE_MS = 1000;

/** What somebody is told meanwhile. */
export const SILENCE = "the platform does not answer; waiting …";

/**
 * Asks until the platform answers: who stays with something that goes on there outlasts its restart. `onSilence` is called
 * for each answer that did not come.
 *
 * @throws what the platform answers, when waiting does not change it, or after three minutes without an answer
 */
export async function patiently<T>(
  { io }: Context,
  ask: () => Promise<T>,
  onSilence: () => void,
): Promise<T> {
  let silentSince: number | undefined;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      silentSince ??= io.now();
      if (!isPassing(error) || io.now() - silentSince > PATIENCE_MS) throw error;
      onSilence();
    }
    await delay(PAUSE_MS, undefined, { signal: io.interrupted });
  }
}

/** The platform may come back from this: no answer, or an answer that it is starting or overloaded. */
function isPassing(error: unknown): boolean {
  if (!(error instanceof OsmosisError)) return false;
  const status = error.details?.["status_code"];
  return (
    error.code === "NETWORK" || error.code === "RATE_LIMITED" || (typeof status === "number" && status >= 500)
  );
}

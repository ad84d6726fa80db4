import type { Clock } from "../src/clock.ts";
import { systemClock } from "../src/io.ts";

/** A clock whose sleeps take no time and are written down. */
export function fastClock(): Clock & { readonly slept: number[] } {
  const slept: number[] = [];
  return {
    slept,
    now: systemClock.now,
    async sleep(ms, signal) {
      signal?.throwIfAborted();
      slept.push(ms);
      await systemClock.sleep(0, signal);
    },
  };
}

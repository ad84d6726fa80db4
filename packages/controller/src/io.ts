import { setTimeout as delay } from "node:timers/promises";
import type { Clock } from "./clock.ts";

/** The clock of this machine. */
export const systemClock: Clock = {
  now: () => performance.now(),
  async sleep(ms, signal) {
    try {
      await delay(ms, undefined, signal === undefined ? {} : { signal });
    } catch (error) {
      throw signal?.aborted === true ? signal.reason : error;
    }
  },
};

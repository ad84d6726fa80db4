import { setTimeout as delay } from "node:timers/promises";

/** Asks again and again until the answer is neither undefined nor false. */
export async function until<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
  timeoutMs = 30_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (Date.now() > deadline) throw new Error(`it did not happen: ${what}`);
    await delay(50);
  }
}

import { setTimeout as sleep } from "node:timers/promises";

/** Asks again and again until the answer is neither undefined nor false. */
export async function until<Answer>(
  what: string,
  ask: () => Answer | undefined | false | Promise<Answer | undefined | false>,
  { timeoutMs = 120_000, pauseMs = 50 }: { timeoutMs?: number; pauseMs?: number } = {},
): Promise<Answer> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (performance.now() > deadline) throw new Error(`it did not happen in ${timeoutMs / 1000} s: ${what}`);
    await sleep(pauseMs);
  }
}

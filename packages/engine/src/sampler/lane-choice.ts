import { createHash } from "node:crypto";

/** Requests that one lane answers as quickly as two would: a step costs something whatever its number of rows. */
const FEW = 16;

/** How much fuller than the emptiest lane one may be before its prompts go elsewhere. */
const SLACK = 4;

/** Remembers so many conversations and prompts; what is forgotten costs the use of a cache, never a result. */
const REMEMBERED = 4096;

/**
 * Says which of several samplers a request goes to: where its conversation was, then where its prompt was, since their
 * caches are there, unless that lane has much more to do than another.
 */
export function createLaneChoice(lanes: number) {
  const loads = Array.from({ length: lanes }, () => 0);
  const places = new Map<string, number>();

  function remember(key: string, lane: number): void {
    places.delete(key);
    places.set(key, lane);
    const [oldest] = places.keys();
    if (places.size > REMEMBERED && oldest !== undefined) places.delete(oldest);
  }

  return {
    /** Takes a lane for a request; `release` it when the request has ended. */
    take(conversation: string, prompt_T: readonly number[]): number {
      const keys = [`c:${conversation}`, `p:${digestOf(prompt_T)}`];
      const least = Math.min(...loads);
      const known = keys
        .map((key) => places.get(key))
        .find((lane) => lane !== undefined && (loads[lane] ?? 0) < Math.max(FEW, least + SLACK));
      const roomy = loads.findIndex((load) => load < FEW);
      const lane = known ?? (roomy >= 0 ? roomy : loads.indexOf(least));
      for (const key of keys) remember(key, lane);
      loads[lane] = (loads[lane] ?? 0) + 1;
      return lane;
    },
    release(lane: number): void {
      loads[lane] = (loads[lane] ?? 0) - 1;
    },
  };
}

/** What stands for a prompt: thousands of whole ones would take more memory than the caches that they lead to. */
function digestOf(prompt_T: readonly number[]): string {
  return createHash("sha256").update(Int32Array.from(prompt_T)).digest("base64");
}

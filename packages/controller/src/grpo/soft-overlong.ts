/**
 * What is added to the reward of a rollout that sampled so many tokens: 0 up to `limit - cache`, then falling evenly to
 * -1 at `limit` (DAPO, arXiv 2503.14476). A cache of 0 switches it off.
 */
export function softOverlong(
  tokens: number,
  { limit, cache }: { readonly limit: number; readonly cache: number },
): number {
  if (cache === 0 || tokens <= limit - cache) return 0;
  return Math.max(-1, (limit - cache - tokens) / cache);
}

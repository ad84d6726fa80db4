/**
 * Milliseconds that a `Retry-After` header in seconds asks to wait, between 50 ms and a minute; undefined when it is
 * missing or no number of seconds.
 */
export function parseRetryAfter(header: string | null): number | undefined {
  if (header === null || header.trim() === "") return undefined;
  const seconds = Number(header);
  return Number.isFinite(seconds) ? Math.min(60_000, Math.max(50, seconds * 1000)) : undefined;
}

/** How often something may be tried: at most `max` times in `window` seconds. */
interface AttemptRule {
  window: number;
  max: number;
}

interface Window {
  count: number;
  endsAt: number;
}

/** Windows that are kept; a flood of addresses forgets the oldest ones rather than fill the memory. */
const MAX_WINDOWS = 10_000;

/** Counts attempts by key in the memory of this server, in the form that the auth library takes. */
export function createAttemptLimit(now: () => Date) {
  const windows = new Map<string, Window>();
  return {
    async consume(key: string, rule: AttemptRule): Promise<{ allowed: boolean; retryAfter: number | null }> {
      const time = now().getTime();
      const known = windows.get(key);
      const current =
        known !== undefined && known.endsAt > time ? known : open(key, time + rule.window * 1000);
      if (current.count >= rule.max) {
        return { allowed: false, retryAfter: Math.ceil((current.endsAt - time) / 1000) };
      }
      current.count += 1;
      return { allowed: true, retryAfter: null };
    },
  };

  function open(key: string, endsAt: number): Window {
    const opened = { count: 0, endsAt };
    windows.delete(key);
    windows.set(key, opened);
    if (windows.size > MAX_WINDOWS) {
      // A map gives its keys in the order in which they came.
      const [oldest] = windows.keys();
      if (oldest !== undefined) windows.delete(oldest);
    }
    return opened;
  }
}

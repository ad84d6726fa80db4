import type { Job, LogEntry, LogLevel } from "@osmosis/protocol";
import type { RunLink } from "./platform-link.ts";

/** Collects the lines of a run and brings them to the platform in batches; a secret never leaves in one of them. */
export type RunLog = AsyncDisposable & {
  write(level: LogLevel, step: string, message: string, details?: Record<string, unknown>): void;
  /** The value with every secret in its texts replaced, for what leaves in another way. */
  hide<T>(value: T): T;
  /** Brings what has been collected so far. */
  flush(): Promise<void>;
};

const INTERVAL_MS = 500;
const BATCH = 500;
/** Lines beyond this are dropped until the next batch has left, and their number is told. */
const CAPACITY = 5000;
const LONGEST_LINE = 8192;

/** What a line of a run must not hold. */
export function hiddenTexts(work: Pick<Job, "secrets" | "trainer">): string[] {
  const { api_key: key } = work.trainer ?? {};
  return [...Object.values(work.secrets), ...(key === undefined ? [] : [key])];
}

export function openRunLog(options: {
  readonly link: Pick<RunLink, "log">;
  readonly secrets: readonly string[];
  readonly now: () => Date;
  readonly signal: AbortSignal;
}): RunLog {
  // Programs print line by line and JSON, so the lines of a longer secret count, and its escaped form. Longest first, so
  // that a secret which contains another is hidden whole.
  const secrets = options.secrets
    .flatMap((value) => [
      value.trim(),
      JSON.stringify(value).slice(1, -1),
      ...value.split(/\r?\n/).filter((line) => line.length > 7),
    ])
    .filter((value) => value.length > 3)
    .sort((a, b) => b.length - a.length);
  let waiting: LogEntry[] = [];
  let dropped = 0;
  let sending: Promise<void> = Promise.resolve();
  const timer = setInterval(() => void flush(), INTERVAL_MS);

  function hideText(text: string): string {
    return secrets.reduce((shown, secret) => shown.replaceAll(secret, "[REDACTED]"), text);
  }

  function hide<T>(value: T): T {
    if (secrets.length === 0 || value === null || value === undefined) return value;
    // Texts are replaced by texts, so the shape stays.
    return JSON.parse(JSON.stringify(value), (_key, inner: unknown) =>
      typeof inner === "string" ? hideText(inner) : inner,
    ) as T;
  }

  function flush(): Promise<void> {
    sending = sending.then(async () => {
      while (waiting.length > 0 || dropped > 0) {
        const batch = waiting.splice(0, BATCH);
        if (dropped > 0) {
          batch.push(
            entry(
              "warning",
              "worker",
              `${dropped} lines were dropped: they came faster than they could be kept`,
            ),
          );
          dropped = 0;
        }
        try {
          await options.link.log(batch, options.signal);
        } catch {
          // The run is over or the lease is lost: there is nobody to tell.
          return;
        }
      }
    });
    return sending;
  }

  function entry(
    level: LogLevel,
    step: string,
    message: string,
    details?: Record<string, unknown>,
  ): LogEntry {
    return {
      timestamp: options.now().toISOString(),
      level,
      step,
      message: hideText(message).slice(0, LONGEST_LINE),
      ...(details === undefined ? {} : { details: hide(details) }),
    };
  }

  return {
    write(level, step, message, details) {
      if (waiting.length >= CAPACITY) dropped += 1;
      else waiting.push(entry(level, step, message, details));
    },
    hide,
    flush,
    async [Symbol.asyncDispose]() {
      clearInterval(timer);
      await flush();
    },
  };
}

import type { LogEntry, LogPage } from "@osmosis/protocol";

export type LogQuery = {
  readonly limit?: number;
  readonly direction?: "older" | "newer";
  readonly cursor?: string;
};

type Load = (query: LogQuery, signal: AbortSignal) => Promise<LogPage>;

/** A stretch of a log without gaps, and where it goes on at both ends. */
export type LogLines = {
  readonly lines: readonly LogEntry[];
  /** Leads to the lines before the first one; null when there are none. */
  readonly older: string | null;
  /** Leads to the lines after the last one; undefined while the log is empty. */
  readonly newer: string | undefined;
};

const PAGE = 200;

/**
 * The end of a log. A page that was read backwards does not say where to go on forwards, so the last line is asked for
 * first: the cursor behind it leads both ways.
 */
export async function readEnd(load: Load, signal: AbortSignal): Promise<LogLines> {
  const last = await load({ limit: 1 }, signal);
  if (last.next_cursor === null) return await readNewer(load, EMPTY, signal);
  const before = await load({ limit: PAGE, cursor: last.next_cursor }, signal);
  return {
    lines: [...before.logs, ...last.logs],
    older: before.next_cursor,
    newer: last.next_cursor,
  };
}

const EMPTY: LogLines = { lines: [], older: null, newer: undefined };

/** The same with what has come since. */
export async function readNewer(load: Load, known: LogLines, signal: AbortSignal): Promise<LogLines> {
  let { lines, newer } = known;
  for (;;) {
    const page = await load(
      { limit: PAGE, direction: "newer", ...(newer === undefined ? {} : { cursor: newer }) },
      signal,
    );
    if (page.logs.length === 0) break;
    lines = [...lines, ...page.logs];
    newer = page.next_cursor ?? newer;
    if (page.logs.length < PAGE) break;
  }
  if (lines === known.lines) return known;
  return { lines, older: known.older, newer };
}

/** The page that `older` leads to, and where it goes on before that. */
export async function readOlder(
  load: Load,
  older: string,
  signal: AbortSignal,
): Promise<Pick<LogLines, "lines" | "older">> {
  const page = await load({ limit: PAGE, cursor: older }, signal);
  return { lines: page.logs, older: page.next_cursor };
}

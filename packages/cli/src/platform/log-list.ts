import type { LogEntry, LogPage } from "@osmosis/protocol";
import { formatTime } from "../output/format.ts";
import type { Extras, ListResult } from "../output/result.ts";

/** A page of log lines. */
export function logList(page: LogPage, extras: Extras): ListResult {
  return {
    kind: "list",
    items: page.logs,
    page: { total_count: page.logs.length, has_more: page.next_cursor !== null, next_offset: null },
    table: { headers: ["TIME", "LEVEL", "STEP", "MESSAGE"], rows: page.logs.map(logCells) },
    empty: "No log lines.",
    extras: { ...extras, next_cursor: page.next_cursor },
  };
}

export function logCells(entry: LogEntry): string[] {
  return [formatTime(entry.timestamp), entry.level, entry.step, entry.message];
}

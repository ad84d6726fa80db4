import { LogLevel, OsmosisError, type LogEntry, type LogPage, type LogQuery } from "@osmosis/protocol";
import { sql, type Kysely } from "kysely";
import type { z } from "zod";
import { jsonb, storableText } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";

/** The longest message that is kept; what is longer is cut. */
const MAX_MESSAGE = 20_000;

/**
 * Appends lines to the log of a run or data set, in order.
 *
 * @throws {OsmosisError} VALIDATION for a line at a time that there is not.
 */
export async function appendLog(
  db: Kysely<Tables>,
  subjectId: string,
  entries: readonly LogEntry[],
): Promise<void> {
  if (entries.length === 0) return;
  await db
    .insertInto("log_lines")
    .values(
      entries.map((entry) => ({
        subject_id: subjectId,
        timestamp: timeOf(entry),
        level: entry.level,
        step: clean(entry.step),
        message: clean(entry.message),
        details: jsonb(entry.details ?? null),
      })),
    )
    .execute();
}

function timeOf({ timestamp }: LogEntry): Date {
  const time = new Date(timestamp);
  const year = time.getUTCFullYear();
  // Invalid dates have no year, and the database has its own idea of those before and after.
  if (year >= 1 && year <= 9999) return time;
  throw new OsmosisError(
    "VALIDATION",
    `${JSON.stringify(timestamp.slice(0, 100))} is no time of a log line.`,
    {
      hint: "Send it in ISO 8601, as 2030-01-31T12:00:00.000Z.",
      details: { field: "timestamp" },
    },
  );
}

function clean(text: string): string {
  return storableText(text.length > MAX_MESSAGE ? `${text.slice(0, MAX_MESSAGE)}…` : text);
}

/**
 * A page of a log, oldest line first. `older` without a cursor is the end of the log, `newer` without one its
 * beginning; of the lines of a level and a source, where they are given. A `newer` page always has a cursor to go on
 * from, also when nothing has come yet.
 */
export async function readLog(
  db: Kysely<Tables>,
  subjectId: string,
  { limit, direction, cursor, level = "debug", source }: z.output<typeof LogQuery>,
): Promise<LogPage> {
  const from = cursor === undefined ? undefined : parseCursor(cursor);
  const rows = await db
    .selectFrom("log_lines")
    .selectAll()
    .where("subject_id", "=", subjectId)
    .$if(level !== "debug", (query) =>
      query.where("level", "in", LogLevel.options.slice(LogLevel.options.indexOf(level))),
    )
    .$if(source !== undefined, (query) =>
      query.where(sql<boolean>`(step = ${source ?? ""} or starts_with(step, ${`${source} `}))`),
    )
    .$if(from !== undefined, (query) => query.where("id", direction === "older" ? "<" : ">", from ?? 0))
    .orderBy("id", direction === "older" ? "desc" : "asc")
    .limit(limit + 1)
    .execute();
  const shown = rows.slice(0, limit);
  if (direction === "older") shown.reverse();
  const logs = shown.map(({ timestamp, level, step, message, details }): LogEntry => ({
    timestamp: timestamp.toISOString(),
    level,
    step,
    message,
    details,
  }));
  const edge =
    direction === "older"
      ? rows.length > limit
        ? shown[0]?.id
        : undefined
      : (shown.at(-1)?.id ?? from ?? 0);
  return { logs, next_cursor: edge === undefined ? null : String(edge) };
}

function parseCursor(cursor: string): number {
  if (/^\d{1,15}$/.test(cursor)) return Number(cursor);
  throw new OsmosisError("VALIDATION", "The cursor is not one of this log.", {
    hint: "Use next_cursor of a page of the same log, or none to begin.",
    details: { field: "cursor" },
  });
}

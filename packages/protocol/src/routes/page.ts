import { z } from "zod";

/** `?limit&offset` of every list. */
export const PageQuery = z.object({
  limit: z.coerce.number().int().min(1).max(50).default(50),
  offset: z.coerce.number().int().min(0).default(0),
});
export type PageQuery = z.infer<typeof PageQuery>;

/** What every list answers beside its items. `next_offset` is null on the last page. */
export const pageFields = {
  total_count: z.int(),
  has_more: z.boolean(),
  next_offset: z.int().nullable(),
};

/** The fields of a page that begins at `offset` and shows `shown` of `total` items. */
export function pageOf(
  total: number,
  offset: number,
  shown: number,
): {
  total_count: number;
  has_more: boolean;
  next_offset: number | null;
} {
  const next = offset + shown;
  const more = shown > 0 && next < total;
  return { total_count: total, has_more: more, next_offset: more ? next : null };
}

/** The least important first. */
export const LogLevel = z.enum(["debug", "info", "warning", "error"]);
export type LogLevel = z.infer<typeof LogLevel>;

export const LogEntry = z.object({
  timestamp: z.string(),
  level: LogLevel,
  /** The phase that speaks: `prepare`, `rollout`, `step 12` … */
  step: z.string(),
  message: z.string(),
  details: z.record(z.string(), z.unknown()).nullish(),
});
export type LogEntry = z.infer<typeof LogEntry>;

/** `older` pages back from the newest line; `newer` follows a run from the cursor on. */
export const LogQuery = z.object({
  limit: z.coerce.number().int().min(1).max(200).default(50),
  direction: z.enum(["older", "newer"]).default("older"),
  cursor: z.string().optional(),
  /** Only lines of this level and above. */
  level: LogLevel.optional(),
  /** Only lines whose `step` is this or begins with this word: `step` has `step 12`, `rollout` the rollout server's own. */
  source: z.string().min(1).max(200).optional(),
});

/** Oldest first inside a page. `next_cursor` is null when nothing is left in that direction (never for `newer`). */
export const LogPage = z.object({ logs: z.array(LogEntry), next_cursor: z.string().nullable() });
export type LogPage = z.infer<typeof LogPage>;

/** Something named that a row refers to; both spellings of its name are sent, since clients read either. */
export const NamedRef = z.object({ id: z.string(), name: z.string() });

export const Ok = z.object({ ok: z.literal(true) });

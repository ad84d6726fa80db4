import { setTimeout as delay } from "node:timers/promises";
import { evalRoutes, trainingRoutes, type LogEntry, type LogPage } from "@osmosis/protocol";
import type { LogOptions } from "../commands/options.ts";
import type { Context } from "../context.ts";
import { formatTime } from "../output/format.ts";
import type { ListResult, SilentResult } from "../output/result.ts";
import { stringifyStrict } from "../output/strict-json.ts";
import { printable } from "../output/style.ts";
import { logList } from "../platform/log-list.ts";
import { SILENCE, patiently } from "../platform/patience.ts";
import { openWorkspaceSession, type WorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import type { RunKind } from "./kind.ts";
import { isFinal } from "./wait.ts";

const POLL_MS = 700;
const PAGE_LINES = 200;

/**
 * One page of a run's log or, followed, the newest page and everything after it until the run has ended. Followed with
 * `--json`, each line is a JSON document of its own, without an envelope.
 */
export async function runLogs(
  context: Context,
  kind: RunKind,
  name: string,
  options: LogOptions,
): Promise<ListResult | SilentResult> {
  const session = await openWorkspaceSession(context);
  const { limit, cursor, level, source } = options;
  const only = { ...(level === undefined ? {} : { level }), ...(source === undefined ? {} : { source }) };
  if (options.follow === true) {
    await follow(context, session, { kind, name, limit, only });
    return { kind: "silent" };
  }
  const page = await readLog(session, kind, name, {
    limit,
    direction: "older",
    ...only,
    ...(cursor === undefined ? {} : { cursor }),
  });
  return logList(page, workspaceExtras(session.workspace));
}

/** Which lines of a log. */
type Only = Pick<LogOptions, "level" | "source">;

type Query = Only & {
  readonly limit: number;
  readonly direction: "older" | "newer";
  readonly cursor?: string;
};

async function readLog(
  { client }: WorkspaceSession,
  kind: RunKind,
  name: string,
  query: Query,
): Promise<LogPage> {
  return await client.call(kind === "eval" ? evalRoutes.logs : trainingRoutes.logs, {
    params: { name },
    query,
  });
}

async function follow(
  context: Context,
  session: WorkspaceSession,
  { kind, name, limit, only }: { kind: RunKind; name: string; limit: number; only: Only },
): Promise<void> {
  const { io } = context;
  /** Whether it was said that the platform is silent now. */
  let isTold = false;
  const patient = <T>(ask: () => Promise<T>): Promise<T> =>
    patiently(context, ask, () => {
      if (!isTold) context.note(`${name}: ${SILENCE}`);
      isTold = true;
    });
  let cursor: string | undefined;
  /** Lines from before this command, of which only the newest are shown; undefined once they are. */
  let backlog: LogEntry[] | undefined = [];
  for (;;) {
    // Asked before the log: lines that were written before the end are in the page that follows.
    const hasEnded = await patient(() => isEnded(session, kind, name));
    const page = await patient(() =>
      readLog(session, kind, name, {
        limit: PAGE_LINES,
        direction: "newer",
        ...only,
        ...(cursor === undefined ? {} : { cursor }),
      }),
    );
    isTold = false;
    cursor = page.next_cursor ?? cursor;
    const isWhole = page.logs.length < PAGE_LINES;
    if (backlog !== undefined) {
      backlog = [...backlog, ...page.logs].slice(-limit);
      if (isWhole) {
        for (const line of backlog) io.stdout.write(lineText(context, line));
        backlog = undefined;
      }
    } else for (const line of page.logs) io.stdout.write(lineText(context, line));
    if (!isWhole) continue;
    if (hasEnded) return;
    await delay(POLL_MS, undefined, { signal: io.interrupted });
  }
}

async function isEnded({ client }: WorkspaceSession, kind: RunKind, name: string): Promise<boolean> {
  const params = { name };
  const { status } =
    kind === "eval"
      ? (await client.call(evalRoutes.get, { params })).eval_run
      : (await client.call(trainingRoutes.get, { params })).training_run;
  return isFinal(status);
}

function lineText({ mode, style }: Context, line: LogEntry): string {
  if (mode === "json") return `${stringifyStrict(line)}\n`;
  const level =
    line.level === "error"
      ? style.red(line.level)
      : line.level === "warning"
        ? style.yellow(line.level)
        : style.dim(line.level);
  return `${style.dim(formatTime(line.timestamp))} ${level} ${style.cyan(line.step)} ${printable(line.message)}\n`;
}

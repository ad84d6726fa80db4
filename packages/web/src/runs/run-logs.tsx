import type { LogEntry, LogPage } from "@osmosis/protocol";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useId, useLayoutEffect, useRef, useState, type ReactElement } from "react";
import { LIVE_MS } from "../platform.ts";
import { Problem, Unanswered } from "../problem.tsx";
import { readEnd, readNewer, readOlder, type LogLines, type LogQuery } from "./log-lines.ts";

/** The end of a run's log, following it while it runs, and what came before it on demand. */
export function RunLogs(props: {
  readonly live: boolean;
  readonly load: (query: LogQuery, signal: AbortSignal) => Promise<LogPage>;
}): ReactElement {
  const { live, load } = props;
  const queries = useQueryClient();
  // The lines are those of this visit: the next one begins at the end again.
  const key = ["log", useId()];
  const answer = useQuery({
    queryKey: key,
    queryFn: async ({ signal }): Promise<LogLines> => {
      const known = queries.getQueryData<LogLines>(key);
      return known === undefined ? await readEnd(load, signal) : await readNewer(load, known, signal);
    },
    refetchInterval: live ? LIVE_MS : false,
    gcTime: 0,
    structuralSharing: false,
  });
  const { refetch } = answer;
  useEffect(() => {
    // The last lines may have come after the last look.
    if (!live) void refetch();
  }, [live, refetch]);
  if (answer.data === undefined) return <Unanswered query={answer} />;
  if (answer.data.lines.length === 0) {
    return <p className="empty">{live ? "Nothing was logged yet." : "Nothing was logged."}</p>;
  }
  return <Lines end={answer.data} live={live} load={load} />;
}

type Before = { readonly lines: readonly LogEntry[]; readonly older: string | null };

function Lines(props: {
  readonly end: LogLines;
  readonly live: boolean;
  readonly load: (query: LogQuery, signal: AbortSignal) => Promise<LogPage>;
}): ReactElement {
  const { end, live, load } = props;
  const [before, setBefore] = useState<Before | undefined>(undefined);
  const [problem, setProblem] = useState<unknown>(undefined);
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const lines = before === undefined ? end.lines : [...before.lines, ...end.lines];
  const older = before === undefined ? end.older : before.older;

  useLayoutEffect(() => {
    const element = box.current;
    if (element !== null && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [lines.length]);

  const showOlder = (cursor: string): void => {
    isAtEnd.current = false;
    setProblem(undefined);
    readOlder(load, cursor, AbortSignal.timeout(30_000)).then(
      (page) => setBefore({ lines: [...page.lines, ...(before?.lines ?? [])], older: page.older }),
      setProblem,
    );
  };

  return (
    <>
      {older === null ? null : (
        <button type="button" className="quiet small" onClick={() => showOlder(older)}>
          Show earlier lines
        </button>
      )}
      {problem === undefined ? null : <Problem error={problem} />}
      <div
        ref={box}
        className="log"
        role="log"
        aria-label="Log"
        tabIndex={0}
        onScroll={({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => {
          isAtEnd.current = scrollTop + clientHeight >= scrollHeight - 8;
        }}
      >
        <ol>
          {lines.map((line, index) => (
            // Lines are only ever put at the ends; counted from the end of what was there first, each keeps its key.
            <Line key={index - (before?.lines.length ?? 0)} line={line} />
          ))}
        </ol>
      </div>
      <p className="quiet">
        {lines.length.toLocaleString("en")} {lines.length === 1 ? "line" : "lines"}
        {live ? ", new ones appear by themselves" : ""}
      </p>
    </>
  );
}

function Line({ line }: { readonly line: LogEntry }): ReactElement {
  return (
    <li className={`level-${line.level}`}>
      <time dateTime={line.timestamp} title={new Date(line.timestamp).toLocaleString("en-GB")}>
        {new Date(line.timestamp).toLocaleTimeString("en-GB")}
      </time>
      <span className="step">{line.step}</span>
      <span className="message" dir="auto">
        {line.level === "info" || line.level === "debug" ? null : <strong>{line.level}: </strong>}
        {line.message}
      </span>
    </li>
  );
}

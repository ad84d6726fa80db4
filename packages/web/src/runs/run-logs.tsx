import type { LogPage } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import type { ReactElement } from "react";
import { LIVE_MS } from "../platform.ts";
import { Problem } from "../problem.tsx";

/** The newest lines of a run's log, following it while it runs. */
export function RunLogs(props: {
  readonly queryKey: readonly string[];
  readonly live: boolean;
  readonly load: (signal: AbortSignal) => Promise<LogPage>;
}): ReactElement {
  const logs = useQuery({
    queryKey: [...props.queryKey, "logs"],
    queryFn: ({ signal }) => props.load(signal),
    refetchInterval: props.live ? LIVE_MS : false,
  });
  if (logs.error !== null) return <Problem error={logs.error} />;
  if (logs.data === undefined) return <p className="waiting">Loading…</p>;
  if (logs.data.logs.length === 0) return <p className="waiting">Nothing was logged yet.</p>;
  return (
    <>
      {logs.data.next_cursor === null ? null : (
        <p className="waiting">The newest {logs.data.logs.length} lines; `osmosis train logs` shows all.</p>
      )}
      <ol className="log">
        {logs.data.logs.map((line, index) => (
          // Lines have no identity of their own, and are only ever replaced as a whole page.
          <li key={`${line.timestamp}-${index}`} className={`level-${line.level}`}>
            <time>{line.timestamp.slice(11, 19)}</time> <span className="step">{line.step}</span>{" "}
            {line.message}
          </li>
        ))}
      </ol>
    </>
  );
}

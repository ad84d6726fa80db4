import { workersRoutes, type WorkerInfo } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { Age } from "../parts/age.tsx";
import { Empty } from "../parts/empty.tsx";
import { Status } from "../parts/status.tsx";
import { LIVE_MS, person, useWorkspaces } from "../platform.ts";
import { Unanswered } from "../problem.tsx";

type Held = WorkerInfo["holds"][number];

/** Who executes runs, what each does now, and how another one joins. Only the owner of the platform is answered. */
export function WorkerListPage(): ReactElement {
  const answer = useQuery({
    queryKey: ["workers"],
    queryFn: ({ signal }) => person.call(workersRoutes.list, { signal }),
    refetchInterval: LIVE_MS * 2,
  });
  const joining = [
    "osmosis worker token create --name lab --save-to lab.token",
    `osmosis worker --platform ${window.location.origin} --token-file lab.token`,
  ];
  return (
    <main>
      <title>Workers · Osmosis</title>
      <h1>Workers</h1>
      <p className="quiet">
        The processes that execute runs, of the last day. A silent one was not heard of for a minute: it
        ended, or cannot reach the platform, and what it held goes to others.
      </p>
      {answer.data === undefined ? (
        <Unanswered query={answer} />
      ) : answer.data.workers.length === 0 ? (
        <Empty
          what="No worker was here in the last day, so runs wait."
          where="The first line makes a token, once; the second joins, on any machine that reaches the platform:"
          command={joining.join("\n")}
        />
      ) : (
        <>
          <Workers of={answer.data.workers} />
          <details className="more">
            <summary>Let another one join</summary>
            <p>
              The first line makes a token, once; the second joins, on any machine that reaches the platform.
            </p>
            <pre>{joining.join("\n")}</pre>
          </details>
        </>
      )}
    </main>
  );
}

function Workers({ of }: { readonly of: readonly WorkerInfo[] }): ReactElement {
  return (
    <table className="runs">
      <thead>
        <tr>
          <th>Name</th>
          <th>State</th>
          <th>Works on</th>
          <th className="number">Last heard of</th>
        </tr>
      </thead>
      <tbody>
        {of.map((worker) => (
          <tr key={worker.name}>
            <td>
              <bdi>{worker.name}</bdi>
              <small>
                started <Age at={worker.started_at} />
              </small>
            </td>
            <td>
              <Status value={worker.state} />
            </td>
            <td>
              {worker.holds.length === 0
                ? "–"
                : worker.holds.map((held) => <Work key={`${held.type} ${held.run_name}`} held={held} />)}
            </td>
            <td className="number" data-name="heard of">
              <Age at={worker.last_seen_at} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What a worker holds: a run, or some rollouts of one. */
function Work({ held }: { readonly held: Held }): ReactElement {
  return (
    <div>
      {held.type === "share" ? `${count(held.rollouts_left, "rollout")} of ` : `${held.kind} `}
      <RunName held={held} />
      <small>
        {held.type === "share"
          ? `step ${held.step}, `
          : held.kind === "training"
            ? `${count(held.committed_steps, "step")} done, `
            : ""}
        in <bdi>{held.workspace}</bdi>
      </small>
    </div>
  );
}

/** A link where there is a page that the person may see. */
function RunName({ held }: { readonly held: Held }): ReactElement {
  const isMember = useWorkspaces().data?.some(({ name }) => name === held.workspace) === true;
  const name = <bdi>{held.run_name}</bdi>;
  if (!isMember || held.kind === "replay") return name;
  return (
    <Link
      to={held.kind === "training" ? "/$workspace/training-runs/$run" : "/$workspace/eval-runs/$run"}
      params={{ workspace: held.workspace, run: held.run_name }}
    >
      {name}
    </Link>
  );
}

function count(n: number, word: string): string {
  return `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
}

import { evalRoutes, trainingRoutes, type EvalRun, type TrainingRun } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatAge, formatNumber, formatShare } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { LIVE_MS } from "../platform.ts";
import { Problem } from "../problem.tsx";
import { Status } from "./status.tsx";

/** Training and evaluation runs of the workspace, newest first. */
export function RunListPage(): ReactElement {
  const { workspace, client } = usePlace();
  const training = useQuery({
    queryKey: [workspace.id, "training-runs"],
    queryFn: ({ signal }) => client.call(trainingRoutes.list, { query: {}, signal }),
    refetchInterval: LIVE_MS * 2,
  });
  const evaluations = useQuery({
    queryKey: [workspace.id, "eval-runs"],
    queryFn: ({ signal }) => client.call(evalRoutes.list, { query: {}, signal }),
    refetchInterval: LIVE_MS * 2,
  });
  const error = training.error ?? evaluations.error;
  if (error !== null) return <Problem error={error} />;
  return (
    <main>
      <h1>Runs</h1>
      <section aria-labelledby="training-heading">
        <h2 id="training-heading">Training</h2>
        <TrainingTable runs={training.data?.training_runs} total={training.data?.total_count ?? 0} />
      </section>
      <section aria-labelledby="evaluation-heading">
        <h2 id="evaluation-heading">Evaluation</h2>
        <EvalTable runs={evaluations.data?.eval_runs} total={evaluations.data?.total_count ?? 0} />
      </section>
    </main>
  );
}

function TrainingTable({
  runs,
  total,
}: {
  runs: readonly TrainingRun[] | undefined;
  total: number;
}): ReactElement {
  const { workspace } = usePlace();
  if (runs === undefined) return <p className="waiting">Loading…</p>;
  if (runs.length === 0) {
    return (
      <Empty command="osmosis train submit configs/training/multiply-local-openai.toml" what="training run" />
    );
  }
  return (
    <>
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>Status</th>
            <th>Model</th>
            <th>Rollout</th>
            <th>Data set</th>
            <th className="number">Step</th>
            <th className="number">Reward</th>
            <th>Submitted</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id}>
              <td>
                <Link
                  to="/$workspace/training-runs/$run"
                  params={{ workspace: workspace.name, run: run.name }}
                >
                  {run.name}
                </Link>
              </td>
              <td>
                <Status value={run.status} />
              </td>
              <td>{run.model.name}</td>
              <td>{run.rollout.name}</td>
              <td>{run.dataset.name}</td>
              <td className="number">
                {run.current_step}/{run.total_steps ?? "?"}
              </td>
              <td className="number">{formatNumber(run.reward)}</td>
              <td>
                {formatAge(run.created_at, new Date())}{" "}
                {run.creator_name === null ? "" : `by ${run.creator_name}`}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <More shown={runs.length} total={total} />
    </>
  );
}

function EvalTable({ runs, total }: { runs: readonly EvalRun[] | undefined; total: number }): ReactElement {
  const { workspace } = usePlace();
  if (runs === undefined) return <p className="waiting">Loading…</p>;
  if (runs.length === 0) {
    return (
      <Empty command="osmosis eval submit configs/eval/multiply-local-openai.toml" what="evaluation run" />
    );
  }
  return (
    <>
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>Status</th>
            <th>Model</th>
            <th>Rollout</th>
            <th>Data set</th>
            <th className="number">Pass rate</th>
            <th className="number">n</th>
            <th className="number">Reward</th>
            <th>Submitted</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id}>
              <td>
                <Link to="/$workspace/eval-runs/$run" params={{ workspace: workspace.name, run: run.name }}>
                  {run.name}
                </Link>
              </td>
              <td>
                <Status value={run.status} />
              </td>
              <td>{run.model.name}</td>
              <td>{run.rollout.name}</td>
              <td>{run.dataset.name}</td>
              <td className="number">{run.results === null ? "–" : formatShare(run.results.pass_rate)}</td>
              <td className="number">
                {run.results === null ? "–" : run.results.total_runs - run.results.skipped}
              </td>
              <td className="number">{formatNumber(run.results?.score)}</td>
              <td>
                {formatAge(run.created_at, new Date())}{" "}
                {run.creator_name === null ? "" : `by ${run.creator_name}`}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <More shown={runs.length} total={total} />
    </>
  );
}

function Empty({ what, command }: { readonly what: string; readonly command: string }): ReactElement {
  return (
    <div className="empty">
      <p>No {what} yet. In a clone of the workspace:</p>
      <pre>{command}</pre>
    </div>
  );
}

function More({ shown, total }: { readonly shown: number; readonly total: number }): ReactElement | null {
  return total > shown ? (
    <p className="waiting">
      The newest {shown} of {total}.
    </p>
  ) : null;
}

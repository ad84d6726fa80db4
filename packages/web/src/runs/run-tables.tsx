import type { EvalRun, TrainingRun } from "@osmosis/protocol";
import { Link } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatConditions, formatNumber, formatShare } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Age } from "../parts/age.tsx";
import { Status } from "../parts/status.tsx";
import { PassRate } from "./pass-rate.tsx";

export function TrainingTable({ runs }: { readonly runs: readonly TrainingRun[] }): ReactElement {
  const { workspace } = usePlace();
  return (
    <table className="runs">
      <thead>
        <tr>
          <th>Name</th>
          <th>Status</th>
          <th className="number">Step</th>
          <th className="number">Validation pass rate</th>
          <th className="number">Last step’s reward</th>
          <th className="number wide-only">Submitted</th>
        </tr>
      </thead>
      <tbody>
        {runs.map((run) => (
          <tr key={run.id}>
            <td>
              <Link to="/$workspace/training-runs/$run" params={{ workspace: workspace.name, run: run.name }}>
                <bdi>{run.name}</bdi>
              </Link>
              <MadeOf run={run} />
            </td>
            <td>
              <Status value={run.status} />
            </td>
            <td className="number" data-name="step">
              {run.current_step}/{run.total_steps ?? "?"}
              {run.status === "running" ? (
                <progress
                  aria-hidden="true"
                  value={run.current_step}
                  max={Math.max(run.total_steps ?? 1, 1)}
                />
              ) : null}
            </td>
            <td className="number" data-name="validation pass rate">
              <Validated run={run} />
            </td>
            <td className="number" data-name="last step’s reward">
              {formatNumber(run.last_step?.reward)}
            </td>
            <td className="number wide-only">
              <Submitted run={run} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function EvalTable({ runs }: { readonly runs: readonly EvalRun[] }): ReactElement {
  const { workspace } = usePlace();
  return (
    <table className="runs">
      <thead>
        <tr>
          <th>Name</th>
          <th>Status</th>
          <th className="number">Pass rate</th>
          <th className="number">Reward</th>
          <th className="number wide-only">Submitted</th>
        </tr>
      </thead>
      <tbody>
        {runs.map((run) => (
          <tr key={run.id}>
            <td>
              <Link to="/$workspace/eval-runs/$run" params={{ workspace: workspace.name, run: run.name }}>
                <bdi>{run.name}</bdi>
              </Link>
              <MadeOf run={run} />
            </td>
            <td>
              <Status value={run.status} />
            </td>
            <td className="number" data-name="pass rate">
              <PassRate results={run.results} />
            </td>
            <td className="number" data-name="reward">
              {formatNumber(run.results?.score)}
            </td>
            <td className="number wide-only">
              <Submitted run={run} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Validated({ run: { validation } }: { readonly run: TrainingRun }): ReactElement {
  if (validation === null) return <>–</>;
  const { pass_rate: rate, reward, temperature } = validation;
  return (
    <>
      {formatShare(rate.value)}
      <small>
        reward {formatNumber(reward)}, {formatConditions(rate.n, temperature)}
      </small>
    </>
  );
}

function MadeOf({ run }: { readonly run: TrainingRun | EvalRun }): ReactElement {
  return (
    <small>
      <bdi>{run.model.name}</bdi>, rollout <bdi>{run.rollout.name}</bdi>, data set{" "}
      <bdi>{run.dataset.name}</bdi>
    </small>
  );
}

function Submitted({ run }: { readonly run: TrainingRun | EvalRun }): ReactElement {
  return (
    <>
      <Age at={run.created_at} />
      {run.creator_name === null ? null : (
        <small>
          by <bdi>{run.creator_name}</bdi>
        </small>
      )}
    </>
  );
}

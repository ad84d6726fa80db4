import type { EvalRun, TrainingRun } from "@osmosis/protocol";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { AlertDialog } from "radix-ui";
import type { ReactElement } from "react";
import { usePlace } from "../frame.tsx";
import { Age } from "../parts/age.tsx";
import { Status } from "../parts/status.tsx";
import { isFinal } from "../platform.ts";
import { Problem } from "../problem.tsx";

/** Which run it is, where it stands, what it is made of, and the button that ends it. */
export function RunHeading(props: {
  readonly kind: "training" | "eval";
  readonly run: TrainingRun | EvalRun;
  readonly stop: () => Promise<{ readonly status: string }>;
}): ReactElement {
  const { run } = props;
  const { workspace } = usePlace();
  const ofWorkspace = { workspace: workspace.name };
  return (
    <header className="heading">
      <title>{`${run.name} · Osmosis`}</title>
      <p className="crumbs">
        {props.kind === "training" ? (
          <Link to="/$workspace/training-runs" params={ofWorkspace}>
            Training
          </Link>
        ) : (
          <Link to="/$workspace/eval-runs" params={ofWorkspace}>
            Evaluation
          </Link>
        )}
      </p>
      <div className="title">
        <h1>
          <bdi>{run.name}</bdi>
        </h1>
        <Status value={run.status} />
        <StopButton {...props} />
        {props.kind === "training" ? (
          <Link to="/$workspace/compare" params={ofWorkspace} search={{ runs: run.name }}>
            Compare
          </Link>
        ) : null}
      </div>
      <p className="quiet">
        <bdi>{run.model.name}</bdi>, rollout <bdi>{run.rollout.name}</bdi>, data set{" "}
        <Link to="/$workspace/datasets/$dataset" params={{ ...ofWorkspace, dataset: run.dataset.name }}>
          <bdi>{run.dataset.name}</bdi>
        </Link>{" "}
        · submitted <Age at={run.created_at} />
        {run.creator_name === null ? null : (
          <>
            {" "}
            by <bdi>{run.creator_name}</bdi>
          </>
        )}
      </p>
      {run.error === null ? null : (
        <pre role="alert" className="problem" dir="auto">
          {run.error}
        </pre>
      )}
    </header>
  );
}

function StopButton(props: {
  readonly kind: "training" | "eval";
  readonly run: TrainingRun | EvalRun;
  readonly stop: () => Promise<{ readonly status: string }>;
}): ReactElement | null {
  const stop = useMutation({ mutationFn: props.stop });
  if (isFinal(props.run.status)) return null;
  if (stop.isSuccess) return <span className="quiet">stopping…</span>;
  return (
    <>
      <AlertDialog.Root>
        <AlertDialog.Trigger asChild>
          <button type="button" className="quiet" disabled={stop.isPending}>
            Stop
          </button>
        </AlertDialog.Trigger>
        <AlertDialog.Portal>
          <AlertDialog.Overlay className="veil" />
          <AlertDialog.Content className="dialog">
            <AlertDialog.Title>Stop this run?</AlertDialog.Title>
            <AlertDialog.Description>
              It cannot be started again. What it has done stays:{" "}
              {props.kind === "training"
                ? "its curves, rollouts and checkpoints."
                : "its rollouts and results."}
            </AlertDialog.Description>
            <div className="actions">
              <AlertDialog.Action asChild>
                <button type="button" className="danger" onClick={() => stop.mutate()}>
                  Stop the run
                </button>
              </AlertDialog.Action>
              <AlertDialog.Cancel asChild>
                <button type="button" className="quiet">
                  Let it run
                </button>
              </AlertDialog.Cancel>
            </div>
          </AlertDialog.Content>
        </AlertDialog.Portal>
      </AlertDialog.Root>
      {stop.error === null ? null : <Problem error={stop.error} />}
    </>
  );
}

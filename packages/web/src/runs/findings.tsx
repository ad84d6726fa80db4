import { analysisRoutes, type Finding, type TrainingRun } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { usePlace } from "../frame.tsx";
import { isFinal } from "../platform.ts";

/** Silence and stalls show by waiting alone, so a run in motion is looked at again without any step. */
const CHECK_MS = 10_000;

/** What the run doctor has to say: alarms, or else advice. Nothing at all for a run that does well. */
export function Findings({ run }: { readonly run: TrainingRun }): ReactElement | null {
  const { workspace, client } = usePlace();
  const answer = useQuery({
    queryKey: [workspace.id, "training", run.name, "doctor", run.current_step, run.status],
    queryFn: ({ signal }) => client.call(analysisRoutes.doctor, { params: { name: run.name }, signal }),
    placeholderData: (before) => before,
    refetchInterval: isFinal(run.status) ? false : CHECK_MS,
  });
  // The heading shows already why a run has failed.
  const findings = (answer.data?.findings ?? []).filter(({ rule }) => rule !== "run_failed");
  if (findings.length === 0) return null;
  return (
    <section className="findings" aria-label="Findings">
      {findings.map((finding) => (
        <FindingBox key={finding.rule} finding={finding} run={run.name} />
      ))}
    </section>
  );
}

function FindingBox(props: { readonly finding: Finding; readonly run: string }): ReactElement {
  const { workspace } = usePlace();
  const { severity, title, evidence, steps, what_to_do: whatToDo, rollouts } = props.finding;
  return (
    <details className={`finding finding-${severity}`} open={severity === "alarm"}>
      <summary>
        <strong>{title}</strong>
        <span className="quiet">
          {" "}
          {severity === "alarm" ? "alarm" : "advice"}
          {steps === null
            ? ""
            : `, ${steps.first === steps.last ? "step" : `steps ${steps.first} to`} ${steps.last}`}
        </span>
      </summary>
      <p dir="auto">{evidence}</p>
      <p>{whatToDo}</p>
      {rollouts.length === 0 ? null : (
        <p>
          Read:{" "}
          {rollouts.map(({ id, step, outcome }, index) => (
            <span key={id}>
              {index === 0 ? "" : ", "}
              <Link
                to="/$workspace/training-runs/$run/rollouts/$rollout"
                params={{ workspace: workspace.name, run: props.run, rollout: id }}
              >
                {outcome} in step {step}
              </Link>
            </span>
          ))}
        </p>
      )}
    </details>
  );
}

import { evalRoutes, trainingRoutes, type RolloutDetail } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState, type ReactElement } from "react";
import type { z } from "zod";
import { formatDuration, formatNumber } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Fact, Facts } from "../parts/facts.tsx";
import { LongText } from "../parts/long-text.tsx";
import { Status } from "../parts/status.tsx";
import { Unanswered } from "../problem.tsx";
import { Conversation } from "./conversation.tsx";

type Detail = z.output<typeof RolloutDetail>;

export function TrainingRolloutPage(): ReactElement {
  const { client } = usePlace();
  const { run, rollout } = useParams({ from: "/page/$workspace/training-runs/$run/rollouts/$rollout" });
  const params = { name: run, rollout_id: rollout };
  return (
    <RolloutPage
      kind="training"
      run={run}
      id={rollout}
      load={(signal) => client.call(trainingRoutes.rollout, { params, signal })}
    />
  );
}

export function EvalRolloutPage(): ReactElement {
  const { client } = usePlace();
  const { run, rollout } = useParams({ from: "/page/$workspace/eval-runs/$run/rollouts/$rollout" });
  const params = { name: run, rollout_id: rollout };
  return (
    <RolloutPage
      kind="eval"
      run={run}
      id={rollout}
      load={(signal) => client.call(evalRoutes.rollout, { params, signal })}
    />
  );
}

/** One rollout: what was said, which tools were called, how it ended and what it earned. */
function RolloutPage(props: {
  readonly kind: "training" | "eval";
  readonly run: string;
  readonly id: string;
  readonly load: (signal: AbortSignal) => Promise<Detail>;
}): ReactElement {
  const { workspace } = usePlace();
  const detail = useQuery({
    queryKey: [workspace.id, props.kind, props.run, "rollout", props.id],
    queryFn: ({ signal }) => props.load(signal),
    // What is recorded never changes.
    staleTime: Infinity,
  });
  return (
    <main>
      <title>{`Rollout of ${props.run} · Osmosis`}</title>
      <Crumbs kind={props.kind} run={props.run} />
      {detail.data === undefined ? (
        <Unanswered query={detail} />
      ) : (
        <Rollout kind={props.kind} detail={detail.data} />
      )}
    </main>
  );
}

function Crumbs(props: { readonly kind: "training" | "eval"; readonly run: string }): ReactElement {
  const { workspace } = usePlace();
  const params = { workspace: workspace.name, run: props.run };
  const name = <bdi>{props.run}</bdi>;
  return (
    <p className="crumbs">
      {props.kind === "training" ? (
        <>
          <Link to="/$workspace/training-runs" params={params}>
            Training
          </Link>{" "}
          /{" "}
          <Link to="/$workspace/training-runs/$run" params={params}>
            {name}
          </Link>{" "}
          /{" "}
          <Link to="/$workspace/training-runs/$run" params={params} search={{ tab: "rollouts" }}>
            Rollouts
          </Link>
        </>
      ) : (
        <>
          <Link to="/$workspace/eval-runs" params={params}>
            Evaluation
          </Link>{" "}
          /{" "}
          <Link to="/$workspace/eval-runs/$run" params={params}>
            {name}
          </Link>{" "}
          /{" "}
          <Link to="/$workspace/eval-runs/$run" params={params} search={{ tab: "rollouts" }}>
            Rollouts
          </Link>
        </>
      )}
    </p>
  );
}

function Rollout(props: { readonly kind: "training" | "eval"; readonly detail: Detail }): ReactElement {
  const { rollout, label, messages, metrics } = props.detail;
  return (
    <>
      <div className="title">
        <h1>
          Row {rollout.row_index}, sample {rollout.sample_index}
        </h1>
        <Status value={rollout.outcome} />
        {props.kind === "training" ? (
          <span className="quiet">
            {rollout.phase}, step {rollout.step}
          </span>
        ) : null}
      </div>
      {rollout.error === null ? null : (
        <pre role="alert" className="problem" dir="auto">
          {rollout.error}
        </pre>
      )}
      <Facts>
        <Fact name="Reward" remark={rollout.reward === null ? REMARKS[rollout.outcome] : undefined}>
          {formatNumber(rollout.reward)}
        </Fact>
        <Fact name="Model calls">{rollout.model_calls.toLocaleString("en")}</Fact>
        <Fact
          name="Tokens"
          remark={`${rollout.prompt_tokens.toLocaleString("en")} prompt, ${rollout.completion_tokens.toLocaleString("en")} sampled`}
        >
          {(rollout.prompt_tokens + rollout.completion_tokens).toLocaleString("en")}
        </Fact>
        <Fact name="Time">{formatDuration(rollout.duration_ms)}</Fact>
        {Object.entries(metrics).map(([name, value]) => (
          <Fact key={name} name={name}>
            {formatNumber(value)}
          </Fact>
        ))}
      </Facts>
      {label === null ? null : (
        <section className="label" aria-labelledby="label-heading">
          <h2 id="label-heading">Label</h2>
          <p className="quiet">The grader saw it, the agent did not.</p>
          <LongText className="text" text={label} />
        </section>
      )}
      <h2>Conversation</h2>
      <Conversation messages={messages} />
      <AsJson detail={props.detail} />
    </>
  );
}

/** Why there is no reward. */
const REMARKS: Readonly<Record<Detail["rollout"]["outcome"], string>> = {
  ok: "not graded",
  truncated: "not graded",
  timeout: "none: the agent ran out of time",
  provider: "none: the model could not be reached",
  agent: "none: the agent failed",
  grader: "none: the grader failed",
  sandbox: "none: its environment failed",
  cancelled: "none: it was cancelled",
  lost: "none: nobody knows how it ended",
};

function AsJson({ detail }: { readonly detail: Detail }): ReactElement {
  const [isOpen, setOpen] = useState(false);
  return (
    <details className="more" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As JSON</summary>
      {isOpen ? <LongText className="json" text={JSON.stringify(detail, null, 2)} /> : null}
    </details>
  );
}

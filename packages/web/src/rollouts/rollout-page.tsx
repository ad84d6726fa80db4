import { evalRoutes, trainingRoutes, type RolloutDetail } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { ReactElement } from "react";
import type { z } from "zod";
import { formatDuration, formatNumber } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Problem } from "../problem.tsx";
import { Fact, Facts } from "../runs/facts.tsx";
import { Status } from "../runs/status.tsx";
import { Conversation } from "./conversation.tsx";

/** One rollout: what was said, which tools were called, how it ended and what it earned. */
export function RolloutPage(): ReactElement {
  const { workspace, client } = usePlace();
  const { kind = "", run = "", rollout: id = "" } = useParams({ strict: false });
  const detail = useQuery({
    queryKey: [workspace.id, kind, run, "rollout", id],
    queryFn: ({ signal }): Promise<z.output<typeof RolloutDetail>> => {
      const params = { name: run, rollout_id: id };
      return kind === "training-runs"
        ? client.call(trainingRoutes.rollout, { params, signal })
        : client.call(evalRoutes.rollout, { params, signal });
    },
  });
  if (detail.error !== null) return <Problem error={detail.error} />;
  if (detail.data === undefined) return <p className="waiting">Loading…</p>;
  const { rollout, label, messages, metrics } = detail.data;
  const training = kind === "training-runs";
  return (
    <main>
      <div className="heading">
        <h1>
          Row {rollout.row_index}, sample {rollout.sample_index}
        </h1>
        <Status value={rollout.outcome} />
        <span className="quiet">
          {training ? `${rollout.phase}, step ${rollout.step} of ` : ""}
          {training ? (
            <Link to="/$workspace/training-runs/$run" params={{ workspace: workspace.name, run }}>
              {run}
            </Link>
          ) : (
            <Link to="/$workspace/eval-runs/$run" params={{ workspace: workspace.name, run }}>
              {run}
            </Link>
          )}
        </span>
      </div>
      {rollout.error === null ? null : (
        <p role="alert" className="problem">
          {rollout.error}
        </p>
      )}
      <Facts>
        <Fact name="Reward">{formatNumber(rollout.reward)}</Fact>
        <Fact name="Label">
          <code>{label ?? "–"}</code>
        </Fact>
        <Fact name="Model calls">{rollout.model_calls}</Fact>
        <Fact name="Tokens" remark={`${rollout.prompt_tokens} prompt, ${rollout.completion_tokens} sampled`}>
          {rollout.prompt_tokens + rollout.completion_tokens}
        </Fact>
        <Fact name="Time">{formatDuration(rollout.duration_ms)}</Fact>
        {Object.entries(metrics).map(([name, value]) => (
          <Fact key={name} name={name}>
            {formatNumber(value)}
          </Fact>
        ))}
      </Facts>
      <Conversation messages={messages} />
    </main>
  );
}

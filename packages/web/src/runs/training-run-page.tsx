import { trainingRoutes, type TrainingMetrics, type TrainingRun } from "@osmosis/protocol";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { Tabs } from "radix-ui";
import type { ReactElement } from "react";
import { formatAge, formatDuration, formatNumber, formatShare } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { LIVE_MS, isFinal } from "../platform.ts";
import { Problem } from "../problem.tsx";
import { RolloutTable } from "../rollouts/rollout-table.tsx";
import { Chart, type Series } from "./chart.tsx";
import { ConfigTable } from "./config-table.tsx";
import { Fact, Facts } from "./facts.tsx";
import { RunLogs } from "./run-logs.tsx";
import { Status } from "./status.tsx";

/** The curves of the first screen, by the platform's metric keys; a chart whose metrics are absent is not shown. */
const CHARTS: readonly { readonly title: string; readonly keys: readonly string[] }[] = [
  { title: "Reward", keys: ["rollout/raw_reward", "eval/validation/reward"] },
  { title: "Pass rate", keys: ["rollout/pass_rate", "eval/validation/pass_rate"] },
  { title: "Entropy", keys: ["train/entropy_loss"] },
  { title: "Gradient norm", keys: ["train/grad_norm"] },
  { title: "Response length", keys: ["rollout/response_lengths"] },
  { title: "Truncation ratio", keys: ["rollout/truncated_ratio"] },
];

/** A training run: where it stands, its curves, rollouts, checkpoints, log and configuration. */
export function TrainingRunPage(): ReactElement {
  const { workspace, client } = usePlace();
  const { run: name = "" } = useParams({ strict: false });
  const params = { name };
  const key = [workspace.id, "training-run", name];
  const detail = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => client.call(trainingRoutes.get, { params, signal }),
    refetchInterval: ({ state }) => (isFinal(state.data?.training_run.status ?? "pending") ? false : LIVE_MS),
  });
  const run = detail.data?.training_run;
  const live = run === undefined || !isFinal(run.status);
  const metrics = useQuery({
    queryKey: [...key, "metrics", live],
    queryFn: ({ signal }) => client.call(trainingRoutes.metrics, { params, signal }),
    refetchInterval: live ? LIVE_MS : false,
    placeholderData: (before) => before,
  });
  if (detail.error !== null) return <Problem error={detail.error} />;
  if (run === undefined || detail.data === undefined) return <p className="waiting">Loading…</p>;
  return (
    <main>
      <Heading run={run} />
      {run.error === null ? null : (
        <p role="alert" className="problem">
          {run.error}
        </p>
      )}
      <Tabs.Root defaultValue="overview">
        <Tabs.List className="tabs" aria-label="Parts of the run">
          <Tabs.Trigger value="overview">Overview</Tabs.Trigger>
          <Tabs.Trigger value="rollouts">Rollouts</Tabs.Trigger>
          <Tabs.Trigger value="checkpoints">Checkpoints</Tabs.Trigger>
          <Tabs.Trigger value="logs">Logs</Tabs.Trigger>
          <Tabs.Trigger value="configuration">Configuration</Tabs.Trigger>
        </Tabs.List>
        <Tabs.Content value="overview">
          <Overview run={run} metrics={metrics.data} />
        </Tabs.Content>
        <Tabs.Content value="rollouts">
          <RolloutTable
            queryKey={key}
            live={live}
            kind="training-runs"
            run={run.name}
            load={(query, signal) => client.call(trainingRoutes.rollouts, { params, query, signal })}
          />
        </Tabs.Content>
        <Tabs.Content value="checkpoints">
          <Checkpoints name={name} live={live} />
        </Tabs.Content>
        <Tabs.Content value="logs">
          <RunLogs
            queryKey={key}
            live={live}
            load={(signal) => client.call(trainingRoutes.logs, { params, query: { limit: 200 }, signal })}
          />
        </Tabs.Content>
        <Tabs.Content value="configuration">
          <ConfigTable
            config={detail.data.config}
            facts={{
              Commit: detail.data.commit_sha,
              Branch: detail.data.branch ?? "–",
              Entrypoint: detail.data.entrypoint,
            }}
          />
        </Tabs.Content>
      </Tabs.Root>
    </main>
  );
}

function Heading({ run }: { readonly run: TrainingRun }): ReactElement {
  const { client } = usePlace();
  const stop = useMutation({
    mutationFn: () => client.call(trainingRoutes.stop, { params: { name: run.name }, body: {} }),
  });
  return (
    <div className="heading">
      <h1>{run.name}</h1>
      <Status value={run.status} />
      <span className="quiet">
        {run.model.name} on {run.rollout.name}, {run.dataset.name} · {formatAge(run.created_at, new Date())}
      </span>
      {isFinal(run.status) ? null : (
        <button
          type="button"
          className="quiet"
          disabled={stop.isPending || stop.isSuccess}
          onClick={() => stop.mutate()}
        >
          {stop.isSuccess ? "Stopping…" : "Stop"}
        </button>
      )}
      {stop.error === null ? null : <Problem error={stop.error} />}
    </div>
  );
}

function Overview(props: {
  readonly run: TrainingRun;
  readonly metrics: TrainingMetrics | undefined;
}): ReactElement {
  const { run, metrics } = props;
  const summary = (key: string): TrainingMetrics["overview"]["metric_summaries"][number] | undefined =>
    metrics?.overview.metric_summaries.find((one) => one.key === key);
  const reward = summary("rollout/raw_reward");
  const durationMs = metrics?.overview.duration_ms ?? null;
  const charts = CHARTS.map(({ title, keys }) => ({ title, series: seriesOf(metrics, keys) })).filter(
    ({ series }) => series.length > 0,
  );
  return (
    <>
      <Progress run={run} durationMs={durationMs} />
      <Facts>
        <Fact name="Duration">{durationMs === null ? "–" : formatDuration(durationMs)}</Fact>
        <Fact name="Reward" remark="training rollouts of the last step">
          {formatNumber(run.reward)}
        </Fact>
        <Fact
          name="Improvement"
          remark={reward === undefined ? undefined : `from ${formatNumber(reward.initial)} at the first step`}
        >
          {reward === undefined ? "–" : `${reward.delta >= 0 ? "+" : ""}${formatNumber(reward.delta)}`}
        </Fact>
        <Fact name="Pass rate" remark="training rollouts of the last step, at the run's temperature">
          {run.pass_rate === null ? "–" : formatShare(run.pass_rate)}
        </Fact>
        <Fact name="Samples" remark="rollouts that ended">
          {run.examples_processed_count.toLocaleString("en")}
        </Fact>
      </Facts>
      {charts.length === 0 ? (
        <p className="waiting">The curves begin with the first step.</p>
      ) : (
        <div className="charts">
          {charts.map(({ title, series }) => (
            <Chart key={title} title={title} series={series} />
          ))}
        </div>
      )}
    </>
  );
}

function seriesOf(metrics: TrainingMetrics | undefined, keys: readonly string[]): Series[] {
  return keys.flatMap((key) => {
    const metric = metrics?.metrics.find(({ metric_key }) => metric_key === key);
    return metric === undefined || metric.data_points.length === 0
      ? []
      : [{ label: metric.title, points: metric.data_points }];
  });
}

function Progress({
  run,
  durationMs,
}: {
  readonly run: TrainingRun;
  readonly durationMs: number | null;
}): ReactElement {
  const total = run.total_steps ?? 0;
  const left =
    isFinal(run.status) || durationMs === null || run.current_step === 0
      ? null
      : (durationMs / run.current_step) * (total - run.current_step);
  return (
    <div className="progress">
      <progress value={run.current_step} max={Math.max(total, 1)} aria-label="Steps" />
      <span>
        step {run.current_step} of {run.total_steps ?? "?"}
        {left === null ? "" : `, about ${formatDuration(left)} left`}
      </span>
    </div>
  );
}

function Checkpoints({ name, live }: { readonly name: string; readonly live: boolean }): ReactElement {
  const { workspace, client } = usePlace();
  const checkpoints = useQuery({
    queryKey: [workspace.id, "training-run", name, "checkpoints"],
    queryFn: ({ signal }) => client.call(trainingRoutes.checkpoints, { params: { name }, signal }),
    refetchInterval: live ? LIVE_MS * 2 : false,
  });
  if (checkpoints.error !== null) return <Problem error={checkpoints.error} />;
  if (checkpoints.data === undefined) return <p className="waiting">Loading…</p>;
  if (checkpoints.data.checkpoints.length === 0) return <p className="waiting">No checkpoint yet.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th>Checkpoint</th>
          <th className="number">Step</th>
          <th className="number">Reward</th>
          <th>Kept</th>
        </tr>
      </thead>
      <tbody>
        {checkpoints.data.checkpoints.map((one) => (
          <tr key={one.id}>
            <td>
              <code>{one.checkpoint_name}</code>
            </td>
            <td className="number">{one.checkpoint_step}</td>
            <td className="number">{formatNumber(one.reward)}</td>
            <td>{formatAge(one.created_at, new Date())}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

import {
  trainingRoutes,
  type LastStep,
  type NewestValidation,
  type TrainingMetrics,
  type TrainingRun,
} from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatConditions, formatDuration, formatEstimate, formatNumber, formatShare } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Fact, Facts } from "../parts/facts.tsx";
import { LIVE_MS, isFinal } from "../platform.ts";
import { Unanswered } from "../problem.tsx";
import { RolloutTable } from "../rollouts/rollout-table.tsx";
import { Chart } from "./chart.tsx";
import { Checkpoints } from "./checkpoints.tsx";
import { ConfigTables } from "./config-tables.tsx";
import { commitTimes, curvesOf, pointsOf, timeLeft, type Point } from "./curves.ts";
import { ExportLinks } from "./export-links.tsx";
import { Findings } from "./findings.tsx";
import { Meter } from "./meter.tsx";
import { MetricTable } from "./metric-table.tsx";
import { RunHeading } from "./run-heading.tsx";
import { RunLogs } from "./run-logs.tsx";
import { RunTabs } from "./run-tabs.tsx";

const FROM = "/page/$workspace/training-runs/$run";

/** A training run: where it stands, its curves, rollouts, checkpoints, log and configuration. */
export function TrainingRunPage(): ReactElement {
  const { workspace, client } = usePlace();
  const { run: name } = useParams({ from: FROM });
  const params = { name };
  const key = [workspace.id, "training", name];
  const detail = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => client.call(trainingRoutes.get, { params, signal }),
    refetchInterval: ({ state }) => (isFinal(state.data?.training_run.status ?? "pending") ? false : LIVE_MS),
  });
  if (detail.data === undefined) {
    return (
      <main>
        <Unanswered query={detail} />
      </main>
    );
  }
  const run = detail.data.training_run;
  const live = !isFinal(run.status);
  return (
    <main>
      <RunHeading
        kind="training"
        run={run}
        stop={() => client.call(trainingRoutes.stop, { params, body: {} })}
      />
      <RunTabs
        from={FROM}
        parts={{
          overview: () => <Overview run={run} />,
          rollouts: () => (
            <RolloutTable
              queryKey={key}
              live={live}
              kind="training"
              run={run.name}
              load={(query, signal) => client.call(trainingRoutes.rollouts, { params, query, signal })}
            />
          ),
          checkpoints: () => <Checkpoints run={run.name} live={live} />,
          logs: () => (
            <RunLogs
              key={run.id}
              live={live}
              load={(query, signal) => client.call(trainingRoutes.logs, { params, query, signal })}
            />
          ),
          configuration: () => <ConfigTables kind="training" detail={detail.data} />,
        }}
      />
    </main>
  );
}

function Overview({ run }: { readonly run: TrainingRun }): ReactElement {
  const { workspace, client } = usePlace();
  const metrics = useQuery({
    // A committed step never changes: there is something new when their count or the status does.
    queryKey: [workspace.id, "training", run.name, "metrics", run.current_step, run.status],
    queryFn: ({ signal }) => client.call(trainingRoutes.metrics, { params: { name: run.name }, signal }),
    placeholderData: (before) => before,
    staleTime: Infinity,
  });
  if (metrics.data === undefined) return <Unanswered query={metrics} />;
  const charts = curvesOf(metrics.data);
  return (
    <>
      <Progress run={run} metrics={metrics.data} />
      <Findings run={run} />
      <Numbers run={run} metrics={metrics.data} />
      {metrics.data.metrics.length === 0 ? (
        <p className="empty">
          {isFinal(run.status)
            ? "The run ended before its first step was done, so there are no curves."
            : `${run.status === "pending" ? "Waiting for a worker. " : ""}The curves begin with the first step.`}
        </p>
      ) : (
        <>
          <div className="charts">
            {charts.map((curves) => (
              <Chart key={curves.title} curves={curves} />
            ))}
          </div>
          <MetricTable metrics={metrics.data} />
        </>
      )}
      <ExportLinks kind="training" run={run.name} />
    </>
  );
}

function Progress(props: { readonly run: TrainingRun; readonly metrics: TrainingMetrics }): ReactElement {
  const { run, metrics } = props;
  const committedAt = commitTimes(metrics);
  const left = isFinal(run.status)
    ? undefined
    : timeLeft({ startedAt: run.started_at, totalSteps: run.total_steps, committedAt });
  const position = `step ${run.current_step} of ${run.total_steps ?? "?"}`;
  return (
    <Meter label="Steps" done={run.current_step} total={run.total_steps}>
      {left === undefined ? position : `${position}, about ${formatEstimate(left)} left`}
    </Meter>
  );
}

function Numbers(props: { readonly run: TrainingRun; readonly metrics: TrainingMetrics }): ReactElement {
  const { run, metrics } = props;
  const { validation, last_step: last } = run;
  const { duration_ms: durationMs } = metrics.overview;
  return (
    <Facts>
      {validation === null ? null : (
        <>
          <Fact name="Validation pass rate" remark={validatedHow(validation)}>
            {formatShare(validation.pass_rate.value)}
          </Fact>
          <Fact name="Validation reward" remark={`mean of the held-out rows after step ${validation.step}`}>
            {formatNumber(validation.reward)}
          </Fact>
        </>
      )}
      <Fact name="Last step’s reward" remark={rewardGained(run, pointsOf(metrics, "rollout/raw_reward"))}>
        {formatNumber(last?.reward)}
      </Fact>
      <Fact name="Last step’s pass rate" remark={last === null ? undefined : sampledHow(last)}>
        {last === null || last.pass_rate === null ? "–" : formatShare(last.pass_rate)}
      </Fact>
      <Fact name="Rollouts" remark="ended in committed steps">
        {run.examples_processed_count.toLocaleString("en")}
      </Fact>
      <Fact name="Duration" remark={isFinal(run.status) ? undefined : "so far"}>
        {durationMs === null ? "–" : formatDuration(durationMs)}
      </Fact>
    </Facts>
  );
}

function validatedHow({ step, pass_rate: rate, temperature }: NewestValidation): string {
  const [low, high] = [rate.ci_low, rate.ci_high].map((share) => (share * 100).toFixed(1));
  return `${formatConditions(rate.n, temperature)}, 95 % interval ${low} to ${high} %, after step ${step}`;
}

/** A batch is no measurement: it is of the rows that are trained on, and of few of them. */
function sampledHow(last: LastStep): string {
  const size = `${last.prompts} prompts × ${last.rollouts_per_prompt}`;
  return `training rows, ${size}, ${formatConditions(last.n, last.temperature)}`;
}

/** A step in which nothing was rewarded has no reward, and none to be compared. */
function rewardGained({ current_step: step }: TrainingRun, points: readonly Point[]): string {
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined || last.step !== step || first.step === step) {
    return "mean of the last step";
  }
  return `${signed(last.value - first.value)} since step ${first.step} (${formatNumber(first.value)})`;
}

function signed(value: number): string {
  return `${value >= 0 ? "+" : "−"}${formatNumber(Math.abs(value))}`;
}

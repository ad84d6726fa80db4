import { evalRoutes, type EvalResults, type EvalRun, type Proportion } from "@osmosis/protocol";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { Tabs } from "radix-ui";
import type { ReactElement } from "react";
import { formatAge, formatNumber, formatShare } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { LIVE_MS, isFinal } from "../platform.ts";
import { Problem } from "../problem.tsx";
import { RolloutTable } from "../rollouts/rollout-table.tsx";
import { ConfigTable } from "./config-table.tsx";
import { Fact, Facts } from "./facts.tsx";
import { RunLogs } from "./run-logs.tsx";
import { Status } from "./status.tsx";

/** An evaluation run: its numbers with their uncertainty, its rollouts, log and configuration. */
export function EvalRunPage(): ReactElement {
  const { workspace, client } = usePlace();
  const { run: name = "" } = useParams({ strict: false });
  const params = { name };
  const key = [workspace.id, "eval-run", name];
  const detail = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => client.call(evalRoutes.get, { params, signal }),
    refetchInterval: ({ state }) => (isFinal(state.data?.eval_run.status ?? "pending") ? false : LIVE_MS),
  });
  if (detail.error !== null) return <Problem error={detail.error} />;
  if (detail.data === undefined) return <p className="waiting">Loading…</p>;
  const { eval_run: run, results } = detail.data;
  const live = !isFinal(run.status);
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
          <Tabs.Trigger value="logs">Logs</Tabs.Trigger>
          <Tabs.Trigger value="configuration">Configuration</Tabs.Trigger>
        </Tabs.List>
        <Tabs.Content value="overview">
          {results === null ? (
            <p className="waiting">No rollout has ended yet.</p>
          ) : (
            <Numbers results={results} attempts={attemptsOf(detail.data.config)} />
          )}
        </Tabs.Content>
        <Tabs.Content value="rollouts">
          <RolloutTable
            queryKey={key}
            live={live}
            kind="eval-runs"
            run={run.name}
            load={(query, signal) => client.call(evalRoutes.rollouts, { params, query, signal })}
          />
        </Tabs.Content>
        <Tabs.Content value="logs">
          <RunLogs
            queryKey={key}
            live={live}
            load={(signal) => client.call(evalRoutes.logs, { params, query: { limit: 200 }, signal })}
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

function Heading({ run }: { readonly run: EvalRun }): ReactElement {
  const { client } = usePlace();
  const stop = useMutation({
    mutationFn: () => client.call(evalRoutes.stop, { params: { name: run.name }, body: {} }),
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

function attemptsOf(config: Readonly<Record<string, unknown>>): number {
  const evaluation = config["evaluation"];
  const attempts =
    typeof evaluation === "object" && evaluation !== null && "n" in evaluation ? evaluation.n : 1;
  return typeof attempts === "number" ? attempts : 1;
}

function Numbers({
  results,
  attempts,
}: {
  readonly results: EvalResults;
  readonly attempts: number;
}): ReactElement {
  const expected = results.sampled_rows * attempts;
  const passAtK = Object.entries(results.reward_stats?.pass_at_k ?? {});
  return (
    <>
      <div className="progress">
        <progress value={results.total_runs} max={Math.max(expected, 1)} aria-label="Rollouts" />
        <span>
          {results.total_runs} of {expected} rollouts
        </span>
      </div>
      <Facts>
        <Fact
          name="Pass rate"
          remark={`${intervalOf(results.pass_rate_ci)}; threshold ${results.pass_threshold}`}
        >
          {formatShare(results.pass_rate)}
        </Fact>
        <Fact name="Mean reward" remark={intervalOf(results.score_ci)}>
          {formatNumber(results.score)}
        </Fact>
        <Fact name="Temperature" remark={results.temperature === 0 ? "greedy" : undefined}>
          {results.temperature === null ? "the provider's" : results.temperature}
        </Fact>
        <Fact name="Rows" remark={`of ${results.total_dataset_rows} in the data set`}>
          {results.sampled_rows}
        </Fact>
        <Fact name="Tokens">{results.total_tokens.toLocaleString("en")}</Fact>
        {passAtK.map(([k, value]) => (
          <Fact key={k} name={`pass@${k}`}>
            {formatShare(value)}
          </Fact>
        ))}
      </Facts>
      <h2>Outcomes</h2>
      <table className="narrow">
        <tbody>
          {Object.entries(results.outcomes).map(([outcome, count]) => (
            <tr key={outcome}>
              <th scope="row">
                <Status value={outcome} />
              </th>
              <td className="number">{count}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function intervalOf(proportion: Proportion | null): string {
  if (proportion === null) return "no interval";
  return `95 % interval ${proportion.ci_low.toFixed(3)} to ${proportion.ci_high.toFixed(3)}, n = ${proportion.n}`;
}

import { attemptsOf, evalRoutes, type Estimate, type EvalResults, type EvalRun } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatConditions, formatDuration, formatEstimate, formatNumber, formatShare } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Fact, Facts } from "../parts/facts.tsx";
import { Status } from "../parts/status.tsx";
import { LIVE_MS, isFinal } from "../platform.ts";
import { Unanswered } from "../problem.tsx";
import { RolloutTable } from "../rollouts/rollout-table.tsx";
import { ConfigTables } from "./config-tables.tsx";
import { ExportLinks } from "./export-links.tsx";
import { Meter } from "./meter.tsx";
import { countedIn } from "./pass-rate.tsx";
import { RunHeading } from "./run-heading.tsx";
import { RunLogs } from "./run-logs.tsx";
import { RunTabs } from "./run-tabs.tsx";

const FROM = "/page/$workspace/eval-runs/$run";

/** An evaluation run: its numbers with their uncertainty, its rollouts, log and configuration. */
export function EvalRunPage(): ReactElement {
  const { workspace, client } = usePlace();
  const { run: name } = useParams({ from: FROM });
  const params = { name };
  const key = [workspace.id, "eval", name];
  const detail = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => client.call(evalRoutes.get, { params, signal }),
    refetchInterval: ({ state }) => (isFinal(state.data?.eval_run.status ?? "pending") ? false : LIVE_MS),
  });
  if (detail.data === undefined) {
    return (
      <main>
        <Unanswered query={detail} />
      </main>
    );
  }
  const { eval_run: run, results } = detail.data;
  const live = !isFinal(run.status);
  return (
    <main>
      <RunHeading kind="eval" run={run} stop={() => client.call(evalRoutes.stop, { params, body: {} })} />
      <RunTabs
        from={FROM}
        parts={{
          overview: () =>
            results === null ? (
              <p className="empty">Waiting for a worker. The numbers come with the first rollouts.</p>
            ) : (
              <>
                <Overview run={run} results={results} attempts={attemptsOf(run)} />
                <ExportLinks kind="eval" run={run.name} />
              </>
            ),
          rollouts: () => (
            <RolloutTable
              queryKey={key}
              live={live}
              kind="eval"
              run={run.name}
              load={(query, signal) => client.call(evalRoutes.rollouts, { params, query, signal })}
            />
          ),
          logs: () => (
            <RunLogs
              key={run.id}
              live={live}
              load={(query, signal) => client.call(evalRoutes.logs, { params, query, signal })}
            />
          ),
          configuration: () => <ConfigTables kind="eval" detail={detail.data} />,
        }}
      />
    </main>
  );
}

function Overview(props: {
  readonly run: EvalRun;
  readonly results: EvalResults;
  readonly attempts: number;
}): ReactElement {
  const { run, results } = props;
  const expected = results.sampled_rows * props.attempts;
  const passAtK = Object.entries(results.reward_stats?.pass_at_k ?? {}).filter(([k]) => k !== "1");
  const n = countedIn(results);
  const left = timeLeft(run, results.total_runs, expected);
  const position = `${results.total_runs} of ${expected} rollouts`;
  return (
    <>
      <Meter label="Rollouts" done={results.total_runs} total={expected}>
        {left === undefined ? position : `${position}, about ${formatEstimate(left)} left`}
      </Meter>
      <Facts>
        <Fact
          name="Pass rate"
          remark={
            <Lines
              of={[
                n === 0 ? "no rollout that counts yet" : formatConditions(n, results.temperature),
                intervalOf(results.pass_rate_ci, formatShare),
                `a pass is a reward of ${results.pass_threshold} or more`,
              ]}
            />
          }
        >
          {n === 0 ? "–" : formatShare(results.pass_rate)}
        </Fact>
        {passAtK.map(([k, value]) => (
          <Fact
            key={k}
            name={`pass@${k}`}
            remark={`${props.attempts} attempts at each of ${results.sampled_rows} rows, ${formatConditions(undefined, results.temperature)}`}
          >
            {formatShare(value)}
          </Fact>
        ))}
        <Fact
          name="Mean reward"
          remark={
            <Lines
              of={[
                `over ${results.graded.toLocaleString("en")} graded`,
                intervalOf(results.score_ci, formatNumber),
              ]}
            />
          }
        >
          {formatNumber(results.score)}
        </Fact>
        <Fact name="Rows" remark={`of ${results.total_dataset_rows.toLocaleString("en")} in the data set`}>
          {results.sampled_rows.toLocaleString("en")}
        </Fact>
        <Fact name="Tokens">{results.total_tokens.toLocaleString("en")}</Fact>
        {run.started_at === null || run.completed_at === null ? null : (
          <Fact name="Duration">
            {formatDuration(Date.parse(run.completed_at) - Date.parse(run.started_at))}
          </Fact>
        )}
      </Facts>
      {results.warnings.map((warning) => (
        <p key={warning} role="status" className="problem">
          {warning}
        </p>
      ))}
      <Components of={results.components} />
      <Outcomes run={run} results={results} />
    </>
  );
}

function Lines(props: { readonly of: readonly string[] }): ReactElement[] {
  return props.of
    .filter((line) => line !== "")
    .map((line) => (
      <span key={line} className="line">
        {line}
      </span>
    ));
}

/** What the grader told beside the reward. */
function Components({ of }: { readonly of: EvalResults["components"] }): ReactElement | null {
  const rows = Object.entries(of);
  if (rows.length === 0) return null;
  return (
    <section aria-labelledby="components">
      <h2 id="components">Beside the reward</h2>
      <table className="narrow">
        <tbody>
          {rows.map(([name, { mean, n }]) => (
            <tr key={name}>
              <th scope="row">
                <bdi>{name}</bdi>
              </th>
              <td className="number">{formatNumber(mean)}</td>
              <td className="number quiet">n = {n.toLocaleString("en")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Outcomes(props: { readonly run: EvalRun; readonly results: EvalResults }): ReactElement | null {
  const { workspace } = usePlace();
  const { outcomes, total_runs: total } = props.results;
  const rows = Object.entries(outcomes).sort(([, a], [, b]) => b - a);
  if (rows.length === 0) return null;
  return (
    <section aria-labelledby="outcomes">
      <h2 id="outcomes">How the rollouts ended</h2>
      <table className="narrow">
        <tbody>
          {rows.map(([outcome, count]) => (
            <tr key={outcome}>
              <th scope="row">
                <Status value={outcome} />
              </th>
              <td className="number">{count.toLocaleString("en")}</td>
              <td className="number quiet">{formatShare(count / total)}</td>
              <td>
                <Link
                  to="/$workspace/eval-runs/$run"
                  params={{ workspace: workspace.name, run: props.run.name }}
                  search={{ tab: "rollouts", outcome: outcome as keyof typeof outcomes }}
                >
                  show
                </Link>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** At the pace since the start. */
function timeLeft(run: EvalRun, done: number, expected: number): number | undefined {
  if (isFinal(run.status) || run.started_at === null || done === 0) return undefined;
  const elapsed = Date.now() - Date.parse(run.started_at);
  return elapsed > 0 ? (elapsed / done) * Math.max(expected - done, 0) : undefined;
}

function intervalOf(estimate: Estimate | null, say: (value: number) => string): string {
  if (estimate === null) return "";
  // Both ends have one unit: `37.3 to 50.9 %`.
  return `95 % interval ${say(estimate.ci_low).replace(" %", "")} to ${say(estimate.ci_high)}`;
}

import type { RolloutSummary } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatDuration, formatNumber } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { PAGE_SIZE, Pager } from "../parts/pager.tsx";
import { Status } from "../parts/status.tsx";
import { LIVE_MS } from "../platform.ts";
import { Problem, Unanswered } from "../problem.tsx";
import { FilterBar, type Filter } from "./rollout-filter.tsx";

type RolloutQuery = Filter & { readonly limit: number; readonly offset: number };

type RolloutPage = { readonly rollouts: readonly RolloutSummary[]; readonly total_count: number };

type Kind = "training" | "eval";

/** The rollouts of a run, a page at a time, by phase, step and outcome; what is chosen is part of the address. */
export function RolloutTable(props: {
  readonly queryKey: readonly string[];
  readonly live: boolean;
  readonly kind: Kind;
  readonly run: string;
  readonly load: (query: RolloutQuery, signal: AbortSignal) => Promise<RolloutPage>;
}): ReactElement {
  const {
    phase,
    step,
    outcome,
    offset = 0,
  } = useSearch({ from: `/page/$workspace/${props.kind}-runs/$run` });
  const navigate = useNavigate();
  const filter = { phase, step, outcome };
  const page = useQuery({
    queryKey: [...props.queryKey, "rollouts", filter, offset, props.live],
    queryFn: ({ signal }) => props.load({ ...filter, limit: PAGE_SIZE, offset }, signal),
    refetchInterval: props.live ? LIVE_MS * 2 : false,
    placeholderData: (before) => before,
  });
  const show = (next: Filter, from = 0): void => {
    // Filtering is no journey: "back" leaves the list.
    void navigate({
      to: ".",
      search: { tab: "rollouts", ...next, ...(from === 0 ? {} : { offset: from }) },
      replace: from === 0 && offset === 0,
      resetScroll: false,
    });
  };
  const rollouts = page.data?.rollouts ?? [];
  return (
    <>
      <FilterBar filter={filter} hasSteps={props.kind === "training"} onChange={show} />
      {page.data === undefined ? (
        <Unanswered query={page} />
      ) : (
        <>
          {page.error === null ? null : <Problem error={page.error} />}
          {rollouts.length === 0 ? (
            <p className="empty">
              {(phase ?? step ?? outcome ?? (offset > 0 ? offset : undefined))
                ? "No rollout is like that."
                : props.live
                  ? "No rollout has ended yet."
                  : "The run has no rollouts."}
            </p>
          ) : (
            <div className={page.isPlaceholderData ? "scroll stale" : "scroll"}>
              <Rows rollouts={rollouts} kind={props.kind} run={props.run} />
            </div>
          )}
          <Pager
            offset={offset}
            shown={rollouts.length}
            total={page.data.total_count}
            onMove={(next) => show(filter, next)}
          />
        </>
      )}
    </>
  );
}

function Rows(props: {
  readonly rollouts: readonly RolloutSummary[];
  readonly kind: Kind;
  readonly run: string;
}): ReactElement {
  const training = props.kind === "training";
  return (
    <table className="rows">
      <thead>
        <tr>
          <th>Rollout</th>
          {training ? (
            <>
              <th className="wide-only">Step</th>
              <th className="wide-only">Phase</th>
            </>
          ) : null}
          <th>Outcome</th>
          <th className="number">Reward</th>
          <th className="number wide-only">Model calls</th>
          <th className="number wide-only">Tokens</th>
          <th className="number wide-only">Time</th>
        </tr>
      </thead>
      <tbody>
        {props.rollouts.map((rollout) => (
          <tr key={rollout.id}>
            <td>
              <RolloutLink rollout={rollout} kind={props.kind} run={props.run} />
              {training ? (
                <small className="narrow-only">
                  step {rollout.step}, {rollout.phase}
                </small>
              ) : null}
            </td>
            {training ? (
              <>
                <td className="wide-only">{rollout.step}</td>
                <td className="wide-only">{rollout.phase}</td>
              </>
            ) : null}
            <td>
              <Status value={rollout.outcome} />
              {rollout.error === null ? null : (
                <small className="error" dir="auto" title={rollout.error.slice(0, 1000)}>
                  {rollout.error.slice(0, 200)}
                </small>
              )}
            </td>
            <td className="number">{formatNumber(rollout.reward)}</td>
            <td className="number wide-only">{rollout.model_calls}</td>
            <td className="number wide-only">
              {(rollout.prompt_tokens + rollout.completion_tokens).toLocaleString("en")}
            </td>
            <td className="number wide-only">{formatDuration(rollout.duration_ms)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function RolloutLink(props: {
  readonly rollout: RolloutSummary;
  readonly kind: Kind;
  readonly run: string;
}): ReactElement {
  const { workspace } = usePlace();
  const { rollout } = props;
  const params = { workspace: workspace.name, run: props.run, rollout: rollout.id };
  const name = `row ${rollout.row_index}, sample ${rollout.sample_index}`;
  return props.kind === "training" ? (
    <Link to="/$workspace/training-runs/$run/rollouts/$rollout" params={params}>
      {name}
    </Link>
  ) : (
    <Link to="/$workspace/eval-runs/$run/rollouts/$rollout" params={params}>
      {name}
    </Link>
  );
}

import type { RolloutOutcome, RolloutSummary } from "@osmosis/protocol";
import { RolloutOutcome as Outcomes } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type ReactElement } from "react";
import { formatDuration, formatNumber } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { LIVE_MS } from "../platform.ts";
import { Problem } from "../problem.tsx";
import { Status } from "../runs/status.tsx";

const PAGE = 50;

type Filter = {
  readonly phase?: RolloutSummary["phase"];
  readonly step?: number;
  readonly outcome?: RolloutOutcome;
};

type RolloutQuery = Filter & { readonly limit: number; readonly offset: number };

type RolloutPage = { readonly rollouts: readonly RolloutSummary[]; readonly total_count: number };

/** The rollouts of a run, a page at a time, by phase, step and outcome. */
export function RolloutTable(props: {
  readonly queryKey: readonly string[];
  readonly live: boolean;
  readonly kind: "training-runs" | "eval-runs";
  readonly run: string;
  readonly load: (query: RolloutQuery, signal: AbortSignal) => Promise<RolloutPage>;
}): ReactElement {
  const [filter, setFilter] = useState<Filter>({});
  const [offset, setOffset] = useState(0);
  const page = useQuery({
    queryKey: [...props.queryKey, "rollouts", filter, offset],
    queryFn: ({ signal }) => props.load({ ...filter, limit: PAGE, offset }, signal),
    refetchInterval: props.live ? LIVE_MS * 2 : false,
    placeholderData: (before) => before,
  });
  const choose = (next: Filter): void => {
    setFilter(next);
    setOffset(0);
  };
  return (
    <>
      <FilterBar filter={filter} training={props.kind === "training-runs"} onChange={choose} />
      {page.error === null ? null : <Problem error={page.error} />}
      {page.data === undefined ? (
        <p className="waiting">Loading…</p>
      ) : (
        <Rows {...props} rollouts={page.data.rollouts} />
      )}
      <Pager
        offset={offset}
        shown={page.data?.rollouts.length ?? 0}
        total={page.data?.total_count ?? 0}
        onMove={setOffset}
      />
    </>
  );
}

function FilterBar(props: {
  readonly filter: Filter;
  readonly training: boolean;
  readonly onChange: (filter: Filter) => void;
}): ReactElement {
  const { phase: _phase, ...withoutPhase } = props.filter;
  const { outcome: _outcome, ...withoutOutcome } = props.filter;
  const { step: _step, ...withoutStep } = props.filter;
  return (
    <form className="filters" onSubmit={(event) => event.preventDefault()}>
      {props.training ? (
        <>
          <label>
            Phase{" "}
            <select
              value={props.filter.phase ?? ""}
              onChange={({ target: { value } }) =>
                props.onChange(
                  value === "train" || value === "validation"
                    ? { ...props.filter, phase: value }
                    : withoutPhase,
                )
              }
            >
              <option value="">all</option>
              <option value="train">train</option>
              <option value="validation">validation</option>
            </select>
          </label>
          <label>
            Step{" "}
            <input
              type="number"
              min={1}
              value={props.filter.step ?? ""}
              onChange={({ target: { valueAsNumber } }) =>
                props.onChange(
                  Number.isInteger(valueAsNumber) ? { ...props.filter, step: valueAsNumber } : withoutStep,
                )
              }
            />
          </label>
        </>
      ) : null}
      <label>
        Outcome{" "}
        <select
          value={props.filter.outcome ?? ""}
          onChange={({ target: { value } }) => {
            const outcome = Outcomes.safeParse(value);
            props.onChange(outcome.success ? { ...props.filter, outcome: outcome.data } : withoutOutcome);
          }}
        >
          <option value="">all</option>
          {Outcomes.options.map((outcome) => (
            <option key={outcome}>{outcome}</option>
          ))}
        </select>
      </label>
    </form>
  );
}

function Rows(props: {
  readonly rollouts: readonly RolloutSummary[];
  readonly kind: "training-runs" | "eval-runs";
  readonly run: string;
}): ReactElement {
  const { workspace } = usePlace();
  const training = props.kind === "training-runs";
  if (props.rollouts.length === 0) return <p className="waiting">No rollout here yet.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th>Rollout</th>
          {training ? (
            <>
              <th>Phase</th>
              <th className="number">Step</th>
            </>
          ) : null}
          <th className="number">Row</th>
          <th className="number">Sample</th>
          <th>Outcome</th>
          <th className="number">Reward</th>
          <th className="number">Calls</th>
          <th className="number">Tokens</th>
          <th className="number">Time</th>
        </tr>
      </thead>
      <tbody>
        {props.rollouts.map((rollout) => (
          <tr key={rollout.id}>
            <td>
              <Link
                to="/$workspace/$kind/$run/rollouts/$rollout"
                params={{ workspace: workspace.name, kind: props.kind, run: props.run, rollout: rollout.id }}
              >
                open
              </Link>
            </td>
            {training ? (
              <>
                <td>{rollout.phase}</td>
                <td className="number">{rollout.step}</td>
              </>
            ) : null}
            <td className="number">{rollout.row_index}</td>
            <td className="number">{rollout.sample_index}</td>
            <td title={rollout.error ?? undefined}>
              <Status value={rollout.outcome} />
            </td>
            <td className="number">{formatNumber(rollout.reward)}</td>
            <td className="number">{rollout.model_calls}</td>
            <td className="number">{rollout.prompt_tokens + rollout.completion_tokens}</td>
            <td className="number">{formatDuration(rollout.duration_ms)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Pager(props: {
  readonly offset: number;
  readonly shown: number;
  readonly total: number;
  readonly onMove: (offset: number) => void;
}): ReactElement | null {
  if (props.total === 0) return null;
  const end = props.offset + props.shown;
  return (
    <div className="pager">
      <button
        type="button"
        className="quiet"
        disabled={props.offset === 0}
        onClick={() => props.onMove(Math.max(0, props.offset - PAGE))}
      >
        Newer
      </button>
      <span>
        {props.offset + 1} to {end} of {props.total}
      </span>
      <button type="button" className="quiet" disabled={end >= props.total} onClick={() => props.onMove(end)}>
        Older
      </button>
    </div>
  );
}

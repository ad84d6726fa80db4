import { evalRoutes, trainingRoutes } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { usePlace } from "../frame.tsx";
import { Empty } from "../parts/empty.tsx";
import { PAGE_SIZE, Pager } from "../parts/pager.tsx";
import { LIVE_MS } from "../platform.ts";
import { Unanswered } from "../problem.tsx";
import { EvalTable, TrainingTable } from "./run-tables.tsx";

/** How many of each kind the first page shows. */
const NEWEST = 10;

/** The newest runs of both kinds. */
export function OverviewPage(): ReactElement {
  const { workspace } = usePlace();
  return (
    <main>
      <title>{`${workspace.name} · Osmosis`}</title>
      <h1>
        <bdi>{workspace.name}</bdi>
      </h1>
      <section aria-labelledby="training-heading">
        <h2 id="training-heading">Training runs</h2>
        <Trainings limit={NEWEST} offset={0} />
      </section>
      <section aria-labelledby="evaluation-heading">
        <h2 id="evaluation-heading">Evaluation runs</h2>
        <Evaluations limit={NEWEST} offset={0} />
      </section>
    </main>
  );
}

export function TrainingListPage(): ReactElement {
  const { workspace } = usePlace();
  const { offset = 0 } = useSearch({ from: "/page/$workspace/training-runs" });
  const navigate = useNavigate();
  return (
    <main>
      <title>Training runs · Osmosis</title>
      <h1>Training runs</h1>
      <p>
        <Link to="/$workspace/compare" params={{ workspace: workspace.name }}>
          Compare runs
        </Link>
      </p>
      <Trainings
        limit={PAGE_SIZE}
        offset={offset}
        onMove={(next) => void navigate({ to: ".", search: { offset: next } })}
      />
    </main>
  );
}

export function EvalListPage(): ReactElement {
  const { offset = 0 } = useSearch({ from: "/page/$workspace/eval-runs" });
  const navigate = useNavigate();
  return (
    <main>
      <title>Evaluation runs · Osmosis</title>
      <h1>Evaluation runs</h1>
      <Evaluations
        limit={PAGE_SIZE}
        offset={offset}
        onMove={(next) => void navigate({ to: ".", search: { offset: next } })}
      />
    </main>
  );
}

type Part = {
  readonly limit: number;
  readonly offset: number;
  /** Without it only the newest are shown. */
  readonly onMove?: (offset: number) => void;
};

function Trainings({ limit, offset, onMove }: Part): ReactElement {
  const { workspace, client } = usePlace();
  const answer = useQuery({
    queryKey: [workspace.id, "training-list", limit, offset],
    queryFn: ({ signal }) => client.call(trainingRoutes.list, { query: { limit, offset }, signal }),
    refetchInterval: LIVE_MS * 2,
    placeholderData: (before) => before,
  });
  if (answer.data === undefined) return <Unanswered query={answer} />;
  const { training_runs: runs, total_count: total } = answer.data;
  if (total === 0) {
    return (
      <Empty
        what="No training run yet."
        where="In a clone of the workspace:"
        command="osmosis train submit configs/training/multiply-local-openai.toml"
      />
    );
  }
  return (
    <>
      <TrainingTable runs={runs} />
      {onMove === undefined ? (
        total > runs.length ? (
          <p>
            <Link to="/$workspace/training-runs" params={{ workspace: workspace.name }}>
              All {total.toLocaleString("en")} training runs
            </Link>
          </p>
        ) : null
      ) : (
        <Pager offset={offset} shown={runs.length} total={total} onMove={onMove} />
      )}
    </>
  );
}

function Evaluations({ limit, offset, onMove }: Part): ReactElement {
  const { workspace, client } = usePlace();
  const answer = useQuery({
    queryKey: [workspace.id, "eval-list", limit, offset],
    queryFn: ({ signal }) => client.call(evalRoutes.list, { query: { limit, offset }, signal }),
    refetchInterval: LIVE_MS * 2,
    placeholderData: (before) => before,
  });
  if (answer.data === undefined) return <Unanswered query={answer} />;
  const { eval_runs: runs, total_count: total } = answer.data;
  if (total === 0) {
    return (
      <Empty
        what="No evaluation run yet."
        where="In a clone of the workspace:"
        command="osmosis eval submit configs/eval/multiply-local-openai.toml"
      />
    );
  }
  return (
    <>
      <EvalTable runs={runs} />
      {onMove === undefined ? (
        total > runs.length ? (
          <p>
            <Link to="/$workspace/eval-runs" params={{ workspace: workspace.name }}>
              All {total.toLocaleString("en")} evaluation runs
            </Link>
          </p>
        ) : null
      ) : (
        <Pager offset={offset} shown={runs.length} total={total} onMove={onMove} />
      )}
    </>
  );
}

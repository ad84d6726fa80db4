import { MOST_COMPARED, analysisRoutes, trainingRoutes, type RunComparison } from "@osmosis/protocol";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useState, type ReactElement } from "react";
import { usePlace } from "../frame.tsx";
import { LIVE_MS, isFinal } from "../platform.ts";
import { Unanswered } from "../problem.tsx";
import { Chart } from "../runs/chart.tsx";
import { ComparedRuns, CurveTable, Differences, Paired } from "./compare-tables.tsx";
import { overlays } from "./overlays.ts";

/** Training runs over each other. Which runs is part of the address, so that it can be passed on. */
export function ComparePage(): ReactElement {
  const { runs: list = "" } = useSearch({ from: "/page/$workspace/compare" });
  const navigate = useNavigate();
  const names = [...new Set(list.split(",").filter((name) => name !== ""))];
  const choose = (next: readonly string[]): void =>
    void navigate({ to: ".", search: next.length === 0 ? {} : { runs: next.join(",") } });
  return (
    <main>
      <title>Compare runs · Osmosis</title>
      <h1>Compare training runs</h1>
      <Choice names={names} choose={choose} />
      {names.length < 2 ? (
        <p className="empty">Choose two runs or more: their curves are drawn over each other.</p>
      ) : (
        <Comparison names={names} />
      )}
    </main>
  );
}

function Choice(props: {
  readonly names: readonly string[];
  readonly choose: (names: readonly string[]) => void;
}): ReactElement {
  const { names, choose } = props;
  const { workspace, client } = usePlace();
  const [typed, setTyped] = useState("");
  const answer = useQuery({
    queryKey: [workspace.id, "training-list", "newest"],
    queryFn: ({ signal }) => client.call(trainingRoutes.list, { query: { limit: 50 }, signal }),
  });
  const add = (name: string): void => {
    if (name !== "" && !names.includes(name)) choose([...names, name]);
    setTyped("");
  };
  const others = (answer.data?.training_runs ?? []).filter(({ name }) => !names.includes(name));
  return (
    <form
      className="filters"
      onSubmit={(event) => {
        event.preventDefault();
        add(typed.trim());
      }}
    >
      {names.map((name) => (
        <span key={name} className="chosen">
          <Link to="/$workspace/training-runs/$run" params={{ workspace: workspace.name, run: name }}>
            <bdi>{name}</bdi>
          </Link>{" "}
          <button
            type="button"
            className="quiet"
            aria-label={`Remove ${name}`}
            onClick={() => choose(names.filter((one) => one !== name))}
          >
            ×
          </button>
        </span>
      ))}
      {names.length >= MOST_COMPARED ? null : (
        <label>
          Add{" "}
          <input
            className="run-name"
            list="other-runs"
            value={typed}
            onChange={({ target }) => {
              setTyped(target.value);
              // A name that was picked from the list needs no other key.
              if (others.some(({ name }) => name === target.value)) add(target.value);
            }}
          />
          <datalist id="other-runs">
            {others.map((run) => (
              <option key={run.id} value={run.name}>
                {run.status}, step {run.current_step}, {run.model.name}
              </option>
            ))}
          </datalist>
        </label>
      )}
    </form>
  );
}

function Comparison({ names }: { readonly names: readonly string[] }): ReactElement {
  const { workspace, client } = usePlace();
  const runs = names.join(",");
  const answer = useQuery({
    queryKey: [workspace.id, "compare", runs],
    queryFn: ({ signal }) => client.call(analysisRoutes.compare, { query: { runs }, signal }),
    refetchInterval: ({ state }) => (isInMotion(state.data) ? 5 * LIVE_MS : false),
  });
  if (answer.data === undefined) return <Unanswered query={answer} />;
  const comparison = answer.data;
  const charts = overlays(comparison);
  return (
    <>
      <ComparedRuns comparison={comparison} />
      <Paired comparison={comparison} />
      <Differences comparison={comparison} />
      <h2>Curves</h2>
      {charts.length === 0 ? (
        <p className="empty">None of the runs has finished a step yet.</p>
      ) : (
        <>
          <div className="charts">
            {charts.map((curves) => (
              <Chart key={curves.title} curves={curves} />
            ))}
          </div>
          <CurveTable comparison={comparison} />
        </>
      )}
    </>
  );
}

function isInMotion(comparison: RunComparison | undefined): boolean {
  return comparison?.runs.some(({ status }) => !isFinal(status)) ?? false;
}

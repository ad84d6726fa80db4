import { metricDefinition, type Estimate, type RunComparison } from "@osmosis/protocol";
import { Link } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { formatNumber } from "../format.ts";
import { usePlace } from "../frame.tsx";
import { Status } from "../parts/status.tsx";
import { SERIES_COLOURS } from "../runs/curves.ts";

type Part = { readonly comparison: RunComparison };

/** The runs with the colours of their curves. */
export function ComparedRuns({ comparison: { runs } }: Part): ReactElement {
  const { workspace } = usePlace();
  return (
    <div className="scroll">
      <table className="lines">
        <thead>
          <tr>
            <th>Run</th>
            <th>Status</th>
            <th className="number">Step</th>
            <th>Model</th>
            <th>Data set</th>
            <th>Commit</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run, index) => (
            <tr key={run.id}>
              <td>
                <span className={`swatch series-${(index % SERIES_COLOURS) + 1}`} aria-hidden="true" />
                <Link
                  to="/$workspace/training-runs/$run"
                  params={{ workspace: workspace.name, run: run.name }}
                >
                  <bdi>{run.name}</bdi>
                </Link>
              </td>
              <td>
                <Status value={run.status} />
              </td>
              <td className="number">
                {run.current_step}/{run.total_steps ?? "?"}
              </td>
              <td>
                <bdi>{run.model}</bdi>
              </td>
              <td>
                <bdi>{run.dataset}</bdi>
              </td>
              <td>
                <code>{run.commit_sha.slice(0, 8)}</code>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Held-out rows, row by row: which run answers more of the same rows. */
export function Paired({ comparison: { paired, notes } }: Part): ReactElement | null {
  if (paired.length === 0 && notes.length === 0) return null;
  return (
    <section aria-label="Held-out rows">
      <h2>Held-out rows, row by row</h2>
      {paired.map((one) => (
        <p key={one.b}>
          <strong>
            <bdi>{one.b}</bdi>
          </strong>{" "}
          (step {one.b_step}) against{" "}
          <strong>
            <bdi>{one.a}</bdi>
          </strong>{" "}
          (step {one.a_step}) on the same {one.rows} rows: pass rate {difference(one.pass_rate)}, reward{" "}
          {difference(one.reward)}. Only <bdi>{one.a}</bdi> passes {one.only_a_passes}, only{" "}
          <bdi>{one.b}</bdi> passes {one.only_b_passes}
          {one.sign_test_p === null ? "" : `, sign test p = ${one.sign_test_p.toPrecision(2)}`}.
        </p>
      ))}
      {notes.map((note) => (
        <p key={note} className="quiet">
          {note}
        </p>
      ))}
    </section>
  );
}

function difference(estimate: Estimate | null): string {
  if (estimate === null) return "without an interval (too few rows, or the same in all)";
  const { value, ci_low: low, ci_high: high } = estimate;
  return `${signed(value)} (95 % interval ${signed(low)} to ${signed(high)})`;
}

function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
}

/** The settings that are not the same in all runs. */
export function Differences({ comparison: { runs, differences } }: Part): ReactElement {
  return (
    <section aria-label="Settings that differ">
      <h2>Settings that differ</h2>
      {differences.length === 0 ? (
        <p className="quiet">None: the runs differ in nothing that they were submitted with.</p>
      ) : (
        <div className="scroll">
          <table className="settings">
            <thead>
              <tr>
                <th>Setting</th>
                {runs.map(({ id, name }) => (
                  <th key={id}>
                    <bdi>{name}</bdi>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {differences.map(({ key, values }) => (
                <tr key={key}>
                  <th scope="row">{key}</th>
                  {runs.map(({ id }, index) => (
                    <td key={id}>
                      <code dir="auto">{textOf(values[index])}</code>
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Every curve in numbers, one line a run. */
export function CurveTable({ comparison: { runs, curves } }: Part): ReactElement {
  return (
    <details className="more">
      <summary>All {curves.length} curves in numbers</summary>
      <div className="scroll">
        <table className="lines">
          <thead>
            <tr>
              <th>Curve</th>
              <th>Run</th>
              <th className="number">Points</th>
              <th className="number">First</th>
              <th className="number">Last</th>
              <th className="number">Least</th>
              <th className="number">Most</th>
              <th className="number">Average</th>
            </tr>
          </thead>
          <tbody>
            {curves.flatMap(({ key, summaries }) =>
              runs.map(({ id, name }, index) => {
                const summary = summaries[index] ?? null;
                return (
                  <tr key={`${key} ${id}`}>
                    <td title={metricDefinition(key)?.definition}>
                      <code>{key}</code>
                    </td>
                    <td>
                      <bdi>{name}</bdi>
                    </td>
                    <td className="number">{summary?.points ?? 0}</td>
                    <td className="number">{formatNumber(summary?.first)}</td>
                    <td className="number">{formatNumber(summary?.last)}</td>
                    <td className="number">{formatNumber(summary?.least)}</td>
                    <td className="number">{formatNumber(summary?.most)}</td>
                    <td className="number">{formatNumber(summary?.average)}</td>
                  </tr>
                );
              }),
            )}
          </tbody>
        </table>
      </div>
    </details>
  );
}

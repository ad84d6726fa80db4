import { METRIC_GROUPS, metricDefinition, type TrainingMetrics } from "@osmosis/protocol";
import { useState, type ReactElement } from "react";
import { formatNumber } from "../format.ts";
import { Prose } from "../problem.tsx";
import { Chart } from "./chart.tsx";

type Summary = TrainingMetrics["overview"]["metric_summaries"][number];

/** Every metric of the run by its key, with its definition and its curve, folded away until somebody looks for one. */
export function MetricTable({ metrics }: { readonly metrics: TrainingMetrics }): ReactElement {
  const [isOpen, setOpen] = useState(false);
  const rows = metrics.overview.metric_summaries;
  return (
    <details className="more" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>All {rows.length} metrics</summary>
      {isOpen
        ? groupsOf(rows).map(({ name, summaries }) => (
            <section key={name}>
              <h2>{name}</h2>
              <div className="scroll">
                <GroupTable summaries={summaries} metrics={metrics} />
              </div>
            </section>
          ))
        : null}
    </details>
  );
}

function groupsOf(
  rows: readonly Summary[],
): { readonly name: string; readonly summaries: readonly Summary[] }[] {
  return [...METRIC_GROUPS, "Other"]
    .map((name) => ({
      name,
      summaries: rows.filter(({ key }) => (metricDefinition(key)?.group ?? "Other") === name),
    }))
    .filter(({ summaries }) => summaries.length > 0);
}

function GroupTable(props: {
  readonly summaries: readonly Summary[];
  readonly metrics: TrainingMetrics;
}): ReactElement {
  return (
    <table className="metrics">
      <thead>
        <tr>
          <th>Metric</th>
          <th className="number">First</th>
          <th className="number">Last</th>
          <th className="number">Least</th>
          <th className="number">Most</th>
        </tr>
      </thead>
      <tbody>
        {props.summaries.map((row) => (
          <MetricRow key={row.key} row={row} metrics={props.metrics} />
        ))}
      </tbody>
    </table>
  );
}

function MetricRow(props: { readonly row: Summary; readonly metrics: TrainingMetrics }): ReactElement {
  const { row } = props;
  const [isOpen, setOpen] = useState(false);
  const definition = metricDefinition(row.key);
  const unit = definition?.unit;
  const points = props.metrics.metrics.find(({ metric_key }) => metric_key === row.key)?.data_points ?? [];
  return (
    <>
      <tr>
        <td>
          <button type="button" className="fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            <code>{row.key}</code>
          </button>
          {definition === undefined ? null : (
            <small>
              <Prose text={definition.definition} />
            </small>
          )}
        </td>
        <td className="number">{formatNumber(row.initial)}</td>
        <td className="number">{formatNumber(row.latest)}</td>
        <td className="number">{formatNumber(row.min)}</td>
        <td className="number">{formatNumber(row.max)}</td>
      </tr>
      {isOpen ? (
        <tr>
          <td colSpan={5}>
            <Chart
              curves={{
                title: row.key,
                isShare: unit === "share",
                series: [{ label: unit === undefined || unit === "1" ? "value" : unit, points }],
              }}
            />
          </td>
        </tr>
      ) : null}
    </>
  );
}

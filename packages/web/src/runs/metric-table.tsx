import type { TrainingMetrics } from "@osmosis/protocol";
import { useState, type ReactElement } from "react";
import { formatNumber } from "../format.ts";

/** Every metric of the run by its key, folded away until somebody looks for one. */
export function MetricTable({ metrics }: { readonly metrics: TrainingMetrics }): ReactElement {
  const [isOpen, setOpen] = useState(false);
  const rows = metrics.overview.metric_summaries;
  return (
    <details className="more" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>All {rows.length} metrics</summary>
      {isOpen ? (
        <div className="scroll">
          <table>
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
              {rows.map((row) => (
                <tr key={row.key}>
                  <td>
                    <code>{row.key}</code>
                  </td>
                  <td className="number">{formatNumber(row.initial)}</td>
                  <td className="number">{formatNumber(row.latest)}</td>
                  <td className="number">{formatNumber(row.min)}</td>
                  <td className="number">{formatNumber(row.max)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
    </details>
  );
}

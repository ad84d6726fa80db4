import { KEY_METRICS, metricDefinition, type RunComparison } from "@osmosis/protocol";
import type { Curves } from "../runs/curves.ts";

/** One chart for each curve of those that matter most, with a line for each run. */
export function overlays({ runs, curves }: RunComparison): Curves[] {
  const drawn = curves.filter(({ key }) => KEY_METRICS.includes(key));
  return drawn.map(({ key, points }) => {
    const definition = metricDefinition(key);
    // Every run has its place, also without values: so it has one colour in all charts.
    const series = runs.map(({ name }, index) => ({ label: name, points: points[index] ?? [] }));
    return {
      title: key,
      isShare: definition?.unit === "share",
      series,
      ...(definition === undefined ? {} : { definition: definition.definition }),
    };
  });
}

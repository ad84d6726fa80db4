import { metricDefinition, type RunComparison } from "@osmosis/protocol";
import type { Curves } from "../runs/curves.ts";

/** Curves that are drawn; all are in the table. The platform answers the important ones first. */
const DRAWN = 12;

/** One chart for each curve that some run has, with a line for each run that has it. */
export function overlays({ runs, curves }: RunComparison): Curves[] {
  return curves.slice(0, DRAWN).map(({ key, points }) => {
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

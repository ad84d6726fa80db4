import { useEffect, useRef, type ReactElement } from "react";
import uPlot from "uplot";

export type Series = {
  readonly label: string;
  readonly points: readonly { readonly step: number; readonly value: number }[];
};

const HEIGHT = 200;
const COLOURS = ["#0f766e", "#b45309", "#6d28d9", "#be123c"];

/** Curves over training steps. What a pointer shows is also in the table of the last values below. */
export function Chart({
  title,
  series,
}: {
  readonly title: string;
  readonly series: readonly Series[];
}): ReactElement {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const labels = series.map(({ label }) => label).join("\n");

  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const style = getComputedStyle(element);
    const grid = { stroke: style.getPropertyValue("--line"), width: 1 };
    const axis = { stroke: style.getPropertyValue("--quiet"), grid, ticks: grid };
    const created = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        scales: { x: { time: false } },
        axes: [axis, { ...axis, size: 56 }],
        series: [
          { label: "step" },
          ...labels.split("\n").map((label, index) => ({
            label,
            stroke: COLOURS[index % COLOURS.length] ?? "#0f766e",
            width: 2,
            spanGaps: true,
            points: { size: 4 },
          })),
        ],
      },
      [[], ...labels.split("\n").map(() => [])],
      element,
    );
    plot.current = created;
    const watch = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      created.destroy();
      plot.current = undefined;
    };
  }, [labels]);

  useEffect(() => plot.current?.setData(aligned(series)), [series]);

  const last = series.map(({ points }) => points.at(-1)?.value);
  return (
    <figure className="chart" aria-label={title}>
      <figcaption>
        {title}
        {last[0] === undefined ? null : <strong> {last[0].toFixed(3)}</strong>}
      </figcaption>
      <div ref={place} />
    </figure>
  );
}

/** uPlot's form: one axis of all steps, and a value or a gap for each series. */
export function aligned(series: readonly Series[]): uPlot.AlignedData {
  const steps = [...new Set(series.flatMap(({ points }) => points.map(({ step }) => step)))].sort(
    (a, b) => a - b,
  );
  return [
    steps,
    ...series.map(({ points }) => {
      const values = new Map(points.map(({ step, value }) => [step, value]));
      return steps.map((step) => values.get(step) ?? null);
    }),
  ];
}

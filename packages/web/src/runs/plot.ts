import uPlot from "uplot";
import { formatTick } from "../format.ts";
import { SERIES_COLOURS, aligned, type Curves } from "./curves.ts";

export const PLOT_HEIGHT = 210;

export type Plot = Disposable & { readonly show: (curves: Curves) => void };

/**
 * Draws curves into an element, as wide as it is. `onPoint` hears which step the pointer is at, or that it left.
 * Colours are those of the page at this moment: draw anew when its theme changes.
 */
export function drawPlot(
  element: HTMLElement,
  curves: Curves,
  onPoint: (index: number | undefined) => void,
): Plot {
  const colour = (name: string) => resolvedColour(element, name);
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--quiet"), grid, ticks: grid, font: "12px system-ui, sans-serif" };
  const widthOf = () => Math.max(element.clientWidth, 120);
  const plot = new uPlot(
    {
      width: widthOf(),
      height: PLOT_HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, y: false },
      scales: {
        x: { time: false, range: (_plot, from, to) => (from === to ? [from - 1, to + 1] : [from, to]) },
        y: curves.isShare
          ? { range: [0, 1] }
          : // A constant, and a run's first point, are not squeezed against an edge.
            { range: (_plot, from, to) => paddedRange(from, to) },
      },
      axes: [
        { ...axis, size: 32, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000] },
        {
          ...axis,
          size: (_plot, texts) =>
            Math.max(52, 20 + 7.5 * Math.max(0, ...(texts ?? []).map(({ length }) => length))),
          values: (_plot, values) =>
            values.map((value) => (curves.isShare ? `${Math.round(value * 100)} %` : formatTick(value))),
        },
      ],
      series: [
        { label: "step" },
        ...curves.series.map(({ label }, index) => ({
          label,
          stroke: colour(seriesColour(index)),
          width: 2,
          spanGaps: true,
          // A single point would vanish as a line; many would hide it.
          points: { show: isSparse, size: 5, fill: colour(seriesColour(index)) },
        })),
      ],
      hooks: {
        setCursor: [
          ({ cursor: { idx, left } }) => onPoint((left ?? -1) < 0 ? undefined : (idx ?? undefined)),
        ],
      },
    },
    aligned(curves.series),
    element,
  );
  const watch = new ResizeObserver(() => plot.setSize({ width: widthOf(), height: PLOT_HEIGHT }));
  watch.observe(element);
  return {
    show: (next) => plot.setData(aligned(next.series)),
    [Symbol.dispose]: () => {
      watch.disconnect();
      plot.destroy();
    },
  };
}

/** The name of the colour of a chart's n-th curve. */
export function seriesColour(index: number): string {
  return `--series-${(index % SERIES_COLOURS) + 1}`;
}

function isSparse(plot: uPlot, series: number): boolean {
  const values = plot.data[series] ?? [];
  return Array.from(values).filter((value) => value !== null).length < 40;
}

function paddedRange(from: number, to: number): [number, number] {
  const padding = (to - from) * 0.08 || Math.abs(to) * 0.1 || 0.1;
  // Rewards, lengths and times that are never negative do not get an axis that is.
  return [from >= 0 ? Math.max(0, from - padding) : from - padding, to + padding];
}

/** A canvas knows neither variables nor `light-dark()`; the element's computed style does. */
function resolvedColour(element: HTMLElement, variable: string): string {
  const before = element.style.color;
  element.style.color = `var(${variable})`;
  const { color } = getComputedStyle(element);
  element.style.color = before;
  return color;
}

import { KEY_METRICS, type CurveSummary, type RunComparison } from "@osmosis/protocol";

type Point = { readonly step: number; readonly value: number };

/** The curves of a run, by key. */
export type RunCurves = ReadonlyMap<string, readonly Point[]>;

/** Lines up the curves of runs by their keys. Runs may have different lengths, and curves gaps. */
export function alignCurves(runs: readonly RunCurves[]): RunComparison["curves"] {
  const keys = [...new Set(runs.flatMap((curves) => [...curves.keys()]))];
  const rank = (key: string): number =>
    KEY_METRICS.includes(key) ? KEY_METRICS.indexOf(key) : KEY_METRICS.length;
  return keys
    .toSorted((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1))
    .map((key) => {
      const points = runs.map((curves) => [...(curves.get(key) ?? [])]);
      return { key, points, summaries: points.map(summaryOf) };
    });
}

/** Null for a curve without points. */
export function summaryOf(points: readonly Point[]): CurveSummary | null {
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined) return null;
  const values = points.map(({ value }) => value);
  let area = 0;
  for (const [index, { step, value }] of points.entries()) {
    const before = points[index - 1];
    if (before !== undefined) area += ((step - before.step) * (value + before.value)) / 2;
  }
  return {
    points: points.length,
    first: first.value,
    last: last.value,
    least: values.reduce((least, value) => Math.min(least, value)),
    most: values.reduce((most, value) => Math.max(most, value)),
    average: last.step === first.step ? first.value : area / (last.step - first.step),
  };
}

/** Settings that are not the same in all runs. Values are compared as JSON. */
export function differencesOf(
  configs: readonly Readonly<Record<string, unknown>>[],
): RunComparison["differences"] {
  const keys = [...new Set(configs.flatMap((config) => Object.keys(config)))].sort();
  return keys
    .map((key) => ({ key, values: configs.map((config) => config[key] ?? null) }))
    .filter(({ values }) => new Set(values.map((value) => JSON.stringify(value))).size > 1);
}

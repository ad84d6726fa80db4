import { readFileSync } from "node:fs";
import { join } from "node:path";
import { MOST_COMPARED, type TrainingMetrics } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { SERIES_COLOURS, aligned, commitTimes, curvesOf, timeLeft } from "./curves.ts";

function metricsOf(values: Readonly<Record<string, Readonly<Record<number, number>>>>): TrainingMetrics {
  return {
    training_run_id: "t",
    status: "running",
    overview: {
      duration_ms: null,
      metric_summaries: [],
      examples_processed_count: 0,
      latest_step: 0,
      total_steps: 10,
    },
    metrics: Object.entries(values).map(([metric_key, points]) => ({
      metric_key,
      title: metric_key,
      data_points: Object.entries(points).map(([step, value]) => ({
        step: Number(step),
        value,
        timestamp: Number(step) * 1000,
      })),
    })),
  };
}

test("a pass rate names its n and its temperature; charts without values are left out", () => {
  const metrics = metricsOf({
    "rollout/pass_rate": { 1: 0.25, 2: 0.5 },
    "rollout/n": { 1: 128, 2: 127 },
    "rollout/temperature": { 1: 1, 2: 1 },
    "eval/validation/pass_rate": { 2: 0.75 },
    "eval/validation/n": { 2: 200 },
    "eval/validation/temperature": { 2: 0 },
  });
  const charts = curvesOf(metrics);
  expect(charts).toMatchObject([
    {
      title: "Pass rate",
      isShare: true,
      series: [
        { label: "training", points: [{ value: 0.25 }, { value: 0.5 }] },
        { label: "validation", points: [{ step: 2, value: 0.75 }] },
      ],
    },
  ]);
  // Those of the step that is looked at.
  expect(charts[0]?.series.map(({ remark }) => [1, 2].map((step) => remark?.(step)))).toEqual([
    ["n = 128, T = 1", "n = 127, T = 1"],
    ["", "n = 200, T = 0 (greedy)"],
  ]);
  expect(curvesOf(undefined)).toEqual([]);
});

test("as many runs as can be compared have a colour each, on the page and in the plot", () => {
  expect(SERIES_COLOURS).toBeGreaterThanOrEqual(MOST_COMPARED);
  const styles = (name: string) => readFileSync(join(import.meta.dirname, "../styles", name), "utf8");
  for (let number = 1; number <= SERIES_COLOURS; number++) {
    expect(styles("base.css")).toContain(`--series-${number}: light-dark(`);
    expect(styles("data.css")).toContain(`background: var(--series-${number});`);
  }
});

test("a step in which nothing was rewarded is a step that was committed", () => {
  const metrics = metricsOf({
    "rollout/raw_reward": { 1: 0.5, 3: 0.5 },
    "perf/step_time": { 1: 1, 2: 1, 3: 1 },
  });
  expect(commitTimes(metrics)).toEqual([1000, 2000, 3000]);
});

test("series with other steps share one axis, with gaps", () => {
  const a = { label: "a", points: [1, 2, 3].map((step) => ({ step, value: step / 10 })) };
  const b = { label: "b", points: [{ step: 2, value: 9 }] };
  expect(aligned([a, b])).toEqual([
    [1, 2, 3],
    [0.1, 0.2, 0.3],
    [null, 9, null],
  ]);
});

test("the time left goes by the pace of the newest steps", () => {
  const startedAt = new Date(0).toISOString();
  const at = (...committedAt: number[]) => timeLeft({ startedAt, totalSteps: 10, committedAt });
  expect([at(), at(4000), at(60_000, 61_000, 62_000)]).toEqual([undefined, 36_000, 7000]);
  expect(at(...Array.from({ length: 10 }, (_, step) => step * 1000))).toBe(0);
  expect(timeLeft({ startedAt, totalSteps: null, committedAt: [1] })).toBeUndefined();
});

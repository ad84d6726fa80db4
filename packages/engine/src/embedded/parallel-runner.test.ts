import { afterAll, beforeAll, expect, test } from "vitest";
import { GraphBuilder } from "../graph/builder.ts";
import { createCallFlags } from "../graph/native-calls.ts";
import { loadRuntime, type TensorData } from "../graph/session.ts";
import type { BatchRunner, Job } from "../training/batch-runner.ts";
import { parallelRunner } from "./parallel-runner.ts";

const factor: TensorData = { data: Float32Array.of(2), shape: [] };
let runner: BatchRunner;

beforeAll(async () => {
  const runtime = await loadRuntime({ threads: 1 });
  runner = parallelRunner({
    runtime,
    parameters: { factor },
    changing: ["factor"],
    lanes: 3,
    callFlags: createCallFlags(),
    pause: async () => {},
  });
  await runner.prepare("scale", () => {
    const graph = new GraphBuilder();
    const x = graph.input("x", ["N"]);
    graph.output("y", graph.node("Mul", [x, graph.input("factor", [])], { shape: ["N"] }));
    return graph.build();
  });
});

afterAll(() => runner.release());

function jobOf(value: number, cost: number): Job {
  return { graph: "scale", feeds: { x: { data: Float32Array.of(value), shape: [1] } }, dimensions: {}, cost };
}

async function results(jobs: readonly Job[]): Promise<[number, number | undefined][]> {
  const seen: [number, number | undefined][] = [];
  await runner.run(jobs, (i, { y }) => seen.push([i, y?.[0]]));
  return seen;
}

test("results come in the order of the jobs, whichever runs first", async () => {
  const jobs = Array.from({ length: 12 }, (_, i) => jobOf(i, (i * 5) % 12));
  expect(await results(jobs)).toEqual(jobs.map((_, i) => [i, 2 * i]));
  expect(await results([jobOf(7, 1)])).toEqual([[0, 14]]);
  expect(await results([])).toEqual([]);
});

test("every lane sees changed parameters", async () => {
  factor.data[0] = 3;
  runner.parametersChanged();
  const jobs = Array.from({ length: 12 }, (_, i) => jobOf(i, 1));
  expect(await results(jobs)).toEqual(jobs.map((_, i) => [i, 3 * i]));
  factor.data[0] = 2;
  runner.parametersChanged();
});

test("a failing job fails the run, wherever it ran, and later runs are not disturbed", async () => {
  for (const place of [0, 5, 11]) {
    const jobs = Array.from({ length: 12 }, (_, i) => jobOf(i, 12 - i));
    jobs[place] = { ...jobOf(0, 12 - place), feeds: {} };
    await expect(results(jobs)).rejects.toThrow("no feed for the graph input x");
    expect(await results([jobOf(1, 1), jobOf(2, 1)])).toEqual([
      [0, 2],
      [1, 4],
    ]);
  }
});

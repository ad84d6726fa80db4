import { expect, test } from "vitest";
import { GraphBuilder } from "./builder.ts";
import { loadRuntime } from "./session.ts";

test("a graph with named dimensions runs at any size", async () => {
  const graph = new GraphBuilder();
  const x = graph.input("x", ["B", "T", 2]);
  const flat = graph.reshape(x, ["N", 2]);
  const doubled = graph.node("Mul", [flat, graph.scalar(2)], { shape: ["N", 2] });
  graph.output("y", graph.reshape(doubled, ["T", "B", 2]));
  const runtime = await loadRuntime({ threads: 1 });
  const session = await runtime.createSession(graph.build());
  for (const [B, T] of [
    [1, 1],
    [2, 3],
  ] as const) {
    const data = Float32Array.from({ length: B * T * 2 }, (_, i) => i);
    const { y } = await session.run({ x: { data, shape: [B, T, 2] } }, { B, T });
    expect(y).toEqual(data.map((value) => 2 * value));
  }
  await session.release();
});

test("nodes, inputs and constants that no output needs are left out", () => {
  const graph = new GraphBuilder();
  const x = graph.input("x", [2]);
  const unused = graph.input("unused", [2]);
  graph.node("Add", [unused, graph.scalar(1)], { shape: [2] });
  graph.output("y", graph.node("Neg", [x], { shape: [2] }));
  const built = graph.build();
  expect(built.inputs.map((input) => input.name)).toEqual(["x"]);
  expect(built.nodeCount).toBe(2);
});

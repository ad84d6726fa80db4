import { expect, test } from "vitest";
import { GraphBuilder } from "./builder.ts";
import { loadRuntime } from "./session.ts";

test("a library that does not load is an expected failure with a remedy", async () => {
  await expect(loadRuntime({ threads: 1, importLibrary: missing })).rejects.toMatchObject({
    code: "ENGINE_MISSING",
    message: "onnxruntime-node does not load: Cannot find package 'onnxruntime-node'",
    hint: expect.stringContaining("npm install onnxruntime-node"),
  });
});

test("a run without one of its inputs says which", async () => {
  const graph = new GraphBuilder();
  graph.output("y", graph.reshape(graph.input("x", ["A", "B"]), ["B", "A"]));
  const session = await (await loadRuntime({ threads: 1 })).createSession(graph.build());
  await expect(session.run({})).rejects.toThrow("no feed for the graph input x");
  const x = { data: new Float32Array(6), shape: [2, 3] };
  await expect(session.run({ x }, { A: 2 })).rejects.toThrow("no size for the dimension B");
  await session.release();
});

function missing(): Promise<never> {
  return Promise.reject(new Error("Cannot find package 'onnxruntime-node'"));
}

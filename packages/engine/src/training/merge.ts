import { GraphBuilder } from "../graph/builder.ts";
import { gemm } from "../graph/operations.ts";
import type { Runtime } from "../graph/session.ts";
import type { ModelConfig } from "../model-config.ts";
import { adaptedLayers, adapterNames } from "../model/adapter.ts";
import type { Weights } from "../safetensors.ts";
import type { Adapter } from "./trainer.ts";

/** The weights with the adapter added: `W + alpha / rank * B A`. Tensors without an adapter are shared, not copied. */
export async function mergeAdapter(
  runtime: Runtime,
  config: ModelConfig,
  weights: Weights,
  adapter: Adapter,
): Promise<Weights> {
  const graph = new GraphBuilder();
  const W = graph.input("W", ["out", "in"]);
  const A = graph.input("A", ["rank", "in"]);
  const B = graph.input("B", ["out", "rank"]);
  graph.output("merged", gemm(graph, B, A, { alpha: adapter.alpha / adapter.rank, addend: W }));
  const session = await runtime.createSession(graph.build());
  const merged: Weights = new Map(weights);
  for (const { path } of adaptedLayers(config)) {
    const name = `${path}.weight`;
    const feeds = {
      W: weights.get(name),
      A: adapter.weights.get(adapterNames(path).A),
      B: adapter.weights.get(adapterNames(path).B),
    };
    if (!feeds.W || !feeds.A || !feeds.B) throw new Error(`no adapter for ${path}`);
    const { merged: data } = await session.run({ W: feeds.W, A: feeds.A, B: feeds.B });
    if (data !== undefined) merged.set(name, { shape: feeds.W.shape, data });
  }
  await session.release();
  return merged;
}

import type { ModelConfig } from "../model-config.ts";
import type { Weights } from "../safetensors.ts";
import type { TrainMethod } from "../service.ts";
import { LINEAR_LAYERS, linearShape } from "./parameters.ts";
import { randomSource } from "./random.ts";

/** Names of the two low-rank factors of a linear layer: A `[rank, in]`, B `[out, rank]`. */
export function adapterNames(path: string): { readonly A: string; readonly B: string } {
  return { A: `${path}.lora_A.weight`, B: `${path}.lora_B.weight` };
}

/** Paths of all linear layers that an adapter changes, with their `[out, in]`. */
export function adaptedLayers(config: ModelConfig): { path: string; outputs: number; inputs: number }[] {
  return Array.from({ length: config.layers }, (_, layer) =>
    LINEAR_LAYERS.map((name) => {
      const [outputs, inputs] = linearShape(config, name);
      return { path: `model.layers.${layer}.${name}`, outputs, inputs };
    }),
  ).flat();
}

/**
 * A fresh adapter that changes nothing yet: A is uniform within `1 / sqrt(in)` (Kaiming with slope sqrt 5, as PEFT
 * does it), B is zero. The same seed gives the same bytes. Layers that are left out have zeros in both, whose gradients
 * are zeros, too.
 */
export function initialiseAdapter(
  config: ModelConfig,
  rank: number,
  seed: number,
  layers?: Extract<TrainMethod, { type: "lora" }>["layers"],
): Weights {
  const random = randomSource(seed);
  const adapter: Weights = new Map();
  for (const { path, outputs, inputs } of adaptedLayers(config)) {
    const isAttention = path.includes(".self_attn.");
    const isLeftOut = layers !== undefined && isAttention !== (layers === "attention");
    const bound = isLeftOut ? 0 : 1 / Math.sqrt(inputs);
    const A = Float32Array.from({ length: rank * inputs }, () => (2 * random.uniform() - 1) * bound);
    adapter.set(adapterNames(path).A, { shape: [rank, inputs], data: A });
    adapter.set(adapterNames(path).B, { shape: [outputs, rank], data: new Float32Array(outputs * rank) });
  }
  return adapter;
}

import type { ModelConfig } from "../model-config.ts";
import type { Weights } from "../safetensors.ts";
import { randomSource } from "./random.ts";

/** The linear layers of one decoder layer, by their Hugging Face names. LoRA adapts all of them. */
export const LINEAR_LAYERS = [
  "self_attn.q_proj",
  "self_attn.k_proj",
  "self_attn.v_proj",
  "self_attn.o_proj",
  "mlp.gate_proj",
  "mlp.up_proj",
  "mlp.down_proj",
] as const;

export const EMBEDDING = "model.embed_tokens.weight";
export const FINAL_NORM = "model.norm.weight";

/** The output head, which a tied model shares with its embedding. */
export function headName(config: ModelConfig): string {
  return config.tiedHead ? EMBEDDING : "lm_head.weight";
}

/** Hugging Face name and shape of every tensor of the model; linear weights are `[out, in]`. */
export function parameterShapes(config: ModelConfig): Map<string, readonly number[]> {
  const { hiddenSize, vocabSize, headSize, architecture } = config;
  const shapes = new Map<string, readonly number[]>([[EMBEDDING, [vocabSize, hiddenSize]]]);
  for (let layer = 0; layer < config.layers; layer++) {
    const prefix = `model.layers.${layer}`;
    shapes.set(`${prefix}.input_layernorm.weight`, [hiddenSize]);
    for (const name of LINEAR_LAYERS) {
      shapes.set(`${prefix}.${name}.weight`, linearShape(config, name));
    }
    if (architecture === "qwen2") {
      for (const name of ["q_proj", "k_proj", "v_proj"] as const) {
        shapes.set(`${prefix}.self_attn.${name}.bias`, [linearShape(config, `self_attn.${name}`)[0]]);
      }
    }
    if (architecture === "qwen3") {
      for (const name of ["q_norm", "k_norm"]) shapes.set(`${prefix}.self_attn.${name}.weight`, [headSize]);
    }
    shapes.set(`${prefix}.post_attention_layernorm.weight`, [hiddenSize]);
  }
  shapes.set(FINAL_NORM, [hiddenSize]);
  shapes.set(headName(config), [vocabSize, hiddenSize]);
  return shapes;
}

/** `[out, in]` of a linear layer. */
export function linearShape(
  config: ModelConfig,
  name: (typeof LINEAR_LAYERS)[number],
): readonly [number, number] {
  const { hiddenSize, heads, kvHeads, headSize, feedForwardSize } = config;
  switch (name) {
    case "self_attn.q_proj":
      return [heads * headSize, hiddenSize];
    case "self_attn.k_proj":
    case "self_attn.v_proj":
      return [kvHeads * headSize, hiddenSize];
    case "self_attn.o_proj":
      return [hiddenSize, heads * headSize];
    case "mlp.gate_proj":
    case "mlp.up_proj":
      return [feedForwardSize, hiddenSize];
    case "mlp.down_proj":
      return [hiddenSize, feedForwardSize];
  }
}

/**
 * Random weights for training from scratch: normal with deviation 0.02, the two projections back into the residual
 * stream scaled down by `sqrt(2 layers)` (Radford et al. 2019), norms 1, biases 0. The same seed gives the same bytes.
 */
export function initialiseModel(config: ModelConfig, seed: number): Weights {
  const random = randomSource(seed);
  const weights: Weights = new Map();
  for (const [name, shape] of parameterShapes(config)) {
    const data = new Float32Array(shape.reduce((product, size) => product * size, 1));
    const isResidual = name.endsWith("o_proj.weight") || name.endsWith("down_proj.weight");
    const deviation = isResidual ? 0.02 / Math.sqrt(2 * config.layers) : 0.02;
    if (name.endsWith(".bias")) data.fill(0);
    else if (shape.length === 1) data.fill(1);
    else for (let i = 0; i < data.length; i++) data[i] = deviation * random.normal();
    weights.set(name, { shape, data });
  }
  return weights;
}

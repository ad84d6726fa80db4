import type { Value } from "../graph/onnx.ts";
import { add, adaptedLinear, linear, reshape, rmsNorm, rotary, swiglu } from "../graph/operations.ts";
import type { Tape } from "../graph/tape.ts";
import type { ModelConfig } from "../model-config.ts";
import { ropePeriods } from "../rope-periods.ts";
import { adapterNames } from "./adapter.ts";
import { FINAL_NORM, headName, linearShape, parameterShapes, type LINEAR_LAYERS } from "./parameters.ts";

/** Queries, keys and values of one layer as token rows, rotated: `[N, heads * headSize]` each. */
export type AttentionRows = { readonly query: Value; readonly key: Value; readonly value: Value };

export type DecoderOptions = {
  /** Embedded tokens `[N, hiddenSize]`. */
  readonly embedded: Value;
  /** int64 `[N, 1]`. */
  readonly positions: Value;
  /** Mixes the tokens: returns rows `[N, heads * headSize]`. Who may look at whom is decided here alone. */
  readonly attend: (layer: number, rows: AttentionRows) => Value;
  /** Applied to the residual stream once no later step mixes tokens, to compute the rest for some rows only. */
  readonly select?: (rows: Value) => Value;
  /** Adds low-rank adapters to all linear layers. */
  readonly adapter?: { readonly rank: number; readonly scale: number };
};

/**
 * Emits a decoder of the Llama family up to its logits `[N, vocabSize]`: RMS norm, rotary positions, attention, SwiGLU.
 * All steps but `attend` treat token rows one by one, so the rows may come from any number of sequences. Parameters
 * are graph inputs under their Hugging Face names; `rope:cosine` and `rope:sine` are tables, see `ropeTables`.
 */
export function decoder(tape: Tape, config: ModelConfig, options: DecoderOptions): Value {
  const { positions, attend, adapter, select = (rows) => rows } = options;
  const { graph } = tape;
  const shapes = parameterShapes(config);
  const parameter = (name: string): Value => {
    const shape = shapes.get(name);
    if (shape === undefined) throw new Error(`the model has no parameter ${name}`);
    return graph.input(name, shape);
  };
  const norm = (x: Value, name: string): Value => rmsNorm(tape, x, parameter(name), config.normEpsilon);
  const project = (x: Value, layer: string, name: (typeof LINEAR_LAYERS)[number]): Value => {
    const path = `${layer}.${name}`;
    const weight = parameter(`${path}.weight`);
    const bias = shapes.has(`${path}.bias`) ? parameter(`${path}.bias`) : undefined;
    if (adapter === undefined) return linear(tape, x, weight, bias);
    const [outputs, inputs] = linearShape(config, name);
    const names = adapterNames(path);
    return adaptedLinear(tape, x, weight, {
      A: graph.input(names.A, [adapter.rank, inputs]),
      B: graph.input(names.B, [outputs, adapter.rank]),
      scale: adapter.scale,
      ...(bias && { bias }),
    });
  };
  const table = ["context", config.headSize / 2];
  const tables = {
    positions,
    cosine: graph.input("rope:cosine", table),
    sine: graph.input("rope:sine", table),
  };
  const perHeadNorm = (x: Value, name: string): Value => {
    if (!shapes.has(name)) return x;
    return reshape(tape, norm(reshape(tape, x, ["heads", config.headSize]), name), x.shape);
  };

  let x = options.embedded;
  for (let i = 0; i < config.layers; i++) {
    const layer = `model.layers.${i}`;
    const normed = norm(x, `${layer}.input_layernorm.weight`);
    const query = perHeadNorm(project(normed, layer, "self_attn.q_proj"), `${layer}.self_attn.q_norm.weight`);
    const key = perHeadNorm(project(normed, layer, "self_attn.k_proj"), `${layer}.self_attn.k_norm.weight`);
    const mixed = attend(i, {
      query: rotary(tape, query, tables),
      key: rotary(tape, key, tables),
      value: project(normed, layer, "self_attn.v_proj"),
    });
    const isLast = i === config.layers - 1;
    const rows = isLast ? select : (rows: Value) => rows;
    x = add(tape, rows(x), project(rows(mixed), layer, "self_attn.o_proj"));

    const inner = norm(x, `${layer}.post_attention_layernorm.weight`);
    const gated = swiglu(tape, project(inner, layer, "mlp.gate_proj"), project(inner, layer, "mlp.up_proj"));
    x = add(tape, x, project(gated, layer, "mlp.down_proj"));
  }
  return linear(tape, norm(x, FINAL_NORM), parameter(headName(config)));
}

/** Cosines and sines `[length, headSize / 2]` of the rotation of each pair of dimensions at each position. */
export function ropeTables(
  config: ModelConfig,
  length = config.contextLength,
): { readonly cosine: Float32Array; readonly sine: Float32Array } {
  const half = config.headSize / 2;
  const periods = ropePeriods(config);
  const cosine = new Float32Array(length * half);
  const sine = new Float32Array(length * half);
  for (let position = 0; position < length; position++) {
    for (const [pair, period] of periods.entries()) {
      const angle = position / period;
      cosine[position * half + pair] = Math.cos(angle);
      sine[position * half + pair] = Math.sin(angle);
    }
  }
  return { cosine, sine };
}

/** The decoder written once more for tests: one sequence, double precision, no cache, nothing clever. */
import type { ModelConfig } from "../model-config.ts";
import { ropePeriods } from "../rope-periods.ts";
import type { Weights } from "../safetensors.ts";

type Vector = readonly number[];

/** Log probabilities [T, vocab] of the token after each of the tokens. */
export function referenceLogprobs(
  config: ModelConfig,
  weights: Weights,
  tokens_T: readonly number[],
): number[][] {
  const { hiddenSize, heads, kvHeads, headSize, layers, normEpsilon: epsilon } = config;
  const tensor = (name: string): Float32Array => {
    const found = weights.get(name);
    if (found === undefined) throw new Error(`no tensor ${name}`);
    return found.data;
  };
  const embedding = tensor("model.embed_tokens.weight");
  const periods = ropePeriods(config);
  let x_T: number[][] = tokens_T.map((id) => [...embedding.subarray(id * hiddenSize, (id + 1) * hiddenSize)]);
  for (let layer = 0; layer < layers; layer++) {
    const prefix = `model.layers.${layer}`;
    const linear = (name: string, x: Vector): number[] =>
      multiply(tensor(`${prefix}.${name}.weight`), x, weights.get(`${prefix}.${name}.bias`)?.data);
    const normed_T = x_T.map((x) => norm(x, tensor(`${prefix}.input_layernorm.weight`), epsilon));
    const heads_T = (name: string, count: number, normName?: string): number[][][] =>
      normed_T.map((x, position) => {
        const flat = linear(`self_attn.${name}_proj`, x);
        return Array.from({ length: count }, (_, head) => {
          const part = flat.slice(head * headSize, (head + 1) * headSize);
          const gamma =
            normName === undefined ? undefined : weights.get(`${prefix}.self_attn.${normName}.weight`);
          const scaled = gamma === undefined ? part : norm(part, gamma.data, epsilon);
          return name === "v" ? part : rotate(scaled, position, periods);
        });
      });
    const q_T = heads_T("q", heads, "q_norm");
    const k_T = heads_T("k", kvHeads, "k_norm");
    const v_T = heads_T("v", kvHeads);
    x_T = x_T.map((x, t) => {
      const mixed = (q_T[t] ?? []).flatMap((q, head) => {
        const kvHead = Math.floor((head * kvHeads) / heads);
        const scores = k_T.slice(0, t + 1).map((k) => dot(q, k[kvHead] ?? []) / Math.sqrt(headSize));
        const probabilities = logSoftmax(scores).map(Math.exp);
        return Array.from({ length: headSize }, (_, i) =>
          probabilities.reduce((sum, p, s) => sum + p * (v_T[s]?.[kvHead]?.[i] ?? 0), 0),
        );
      });
      const h = add(x, linear("self_attn.o_proj", mixed));
      const normed = norm(h, tensor(`${prefix}.post_attention_layernorm.weight`), epsilon);
      const gate = linear("mlp.gate_proj", normed).map((value) => value / (1 + Math.exp(-value)));
      const up = linear("mlp.up_proj", normed);
      return add(
        h,
        linear(
          "mlp.down_proj",
          gate.map((value, i) => value * (up[i] ?? 0)),
        ),
      );
    });
  }
  const head = config.tiedHead ? embedding : tensor("lm_head.weight");
  return x_T.map((x) => logSoftmax(multiply(head, norm(x, tensor("model.norm.weight"), epsilon))));
}

/** Every tensor that the config asks for, filled with a fixed pseudo-random pattern. */
export function randomWeights(config: ModelConfig, scale = 1): Weights {
  const { hiddenSize, vocabSize, headSize, feedForwardSize, architecture } = config;
  const queries = config.heads * headSize;
  const keys = config.kvHeads * headSize;
  const shapes: [string, number[]][] = [
    ["model.embed_tokens.weight", [vocabSize, hiddenSize]],
    ["model.norm.weight", [hiddenSize]],
  ];
  if (!config.tiedHead) shapes.push(["lm_head.weight", [vocabSize, hiddenSize]]);
  for (let layer = 0; layer < config.layers; layer++) {
    const add = (name: string, ...shape: number[]) => shapes.push([`model.layers.${layer}.${name}`, shape]);
    for (const [name, width] of [
      ["q", queries],
      ["k", keys],
      ["v", keys],
    ] as const) {
      add(`self_attn.${name}_proj.weight`, width, hiddenSize);
      if (architecture === "qwen2") add(`self_attn.${name}_proj.bias`, width);
    }
    add("self_attn.o_proj.weight", hiddenSize, queries);
    if (architecture === "qwen3") add("self_attn.q_norm.weight", headSize);
    if (architecture === "qwen3") add("self_attn.k_norm.weight", headSize);
    add("input_layernorm.weight", hiddenSize);
    add("post_attention_layernorm.weight", hiddenSize);
    add("mlp.gate_proj.weight", feedForwardSize, hiddenSize);
    add("mlp.up_proj.weight", feedForwardSize, hiddenSize);
    add("mlp.down_proj.weight", hiddenSize, feedForwardSize);
  }
  let state = 1;
  const next = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 31 - 1;
  };
  return new Map(
    shapes.map(([name, shape]) => {
      const size = shape.reduce((a, b) => a * b, 1);
      const isNorm = name.endsWith("norm.weight");
      const spread = shape.length === 2 ? (scale * 2) / Math.sqrt(shape[1] ?? 1) : 0.3;
      return [
        name,
        { shape, data: Float32Array.from({ length: size }, () => (isNorm ? 1 : 0) + spread * next()) },
      ];
    }),
  );
}

function multiply(matrix: Float32Array, x: Vector, bias?: Float32Array): number[] {
  return Array.from({ length: matrix.length / x.length }, (_, o) =>
    x.reduce((sum, value, i) => sum + value * (matrix[o * x.length + i] ?? 0), bias?.[o] ?? 0),
  );
}

function norm(x: Vector, gamma: Float32Array, epsilon: number): number[] {
  const scale = 1 / Math.sqrt(dot(x, x) / x.length + epsilon);
  return x.map((value, i) => value * scale * (gamma[i] ?? 0));
}

function rotate(x: Vector, position: number, periods: readonly number[]): number[] {
  const half = x.length / 2;
  return x.map((value, i) => {
    const angle = position / (periods[i % half] ?? NaN);
    const other = x[(i + half) % x.length] ?? 0;
    return value * Math.cos(angle) + (i < half ? -other : other) * Math.sin(angle);
  });
}

function logSoftmax(x: Vector): number[] {
  const max = Math.max(...x);
  const logSum = max + Math.log(x.reduce((sum, value) => sum + Math.exp(value - max), 0));
  return x.map((value) => value - logSum);
}

function dot(a: Vector, b: Vector): number {
  return a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0);
}

function add(a: Vector, b: Vector): number[] {
  return a.map((value, i) => value + (b[i] ?? 0));
}

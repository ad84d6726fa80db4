import { OsmosisError } from "@osmosis/protocol";
import type { TensorData } from "../graph/session.ts";
import type { ModelConfig } from "../model-config.ts";
import type { Weights } from "../safetensors.ts";
import { productLayoutOf } from "./product-layout.ts";

type Feeds = Readonly<Record<string, TensorData>>;

/** Weights as the graphs of `decoder-graphs.ts` take them: matrices with one input are joined to one. */
export type DecoderWeights = {
  /** [vocab, hidden], row-major. */
  readonly embedding: Float32Array;
  /** Per layer, the inputs of its projection. */
  readonly projections: readonly Feeds[];
  /** Per layer, the inputs of its attention output and feed-forward. */
  readonly layers: readonly Feeds[];
  readonly head: Feeds;
};

/**
 * Lays out weights by Hugging Face names for the decoder. Vectors and the embedding are referred to, matrices copied unless they
 * lie as they are needed.
 * @throws OsmosisError `VALIDATION` for a tensor that is missing, has another size, or holds a NaN or an infinity.
 */
export function layOutWeights(config: ModelConfig, weights: Weights): DecoderWeights {
  const { hiddenSize, headSize, vocabSize, feedForwardSize } = config;
  const queryWidth = config.heads * headSize;
  const keyWidth = config.kvHeads * headSize;
  const read = (name: string, ...shape: readonly number[]): Float32Array => {
    const tensor = weights.get(name);
    if (tensor === undefined) throw invalid(`The weights have no tensor ${name}.`);
    const { data } = tensor;
    if (tensor.shape.join() !== shape.join()) {
      throw invalid(
        `Tensor ${name} has shape [${tensor.shape.join(", ")}] instead of [${shape.join(", ")}].`,
      );
    }
    if (!allFinite(data)) {
      throw invalid(
        `Tensor ${name} holds a NaN or an infinity.`,
        "Training diverged: lower the learning rate.",
      );
    }
    return data;
  };
  const vector = (name: string, size: number): TensorData => ({ data: read(name, size), shape: [size] });
  const layout = productLayoutOf(config);
  /** Joins [out, in] matrices of one input to one [in, sum of out], or for blocked products [sum of out, in]. */
  const matrix = (inputs: number, parts: readonly { name: string; outputs: number }[]): TensorData => {
    const width = parts.reduce((sum, { outputs }) => sum + outputs, 0);
    if (layout === "blocked") {
      const [first, ...others] = parts.map(({ name, outputs }) => read(name, outputs, inputs));
      if (first === undefined) throw new Error("a matrix has parts");
      const joined = others.length === 0 ? first : sharedFloats(inputs * width);
      let offset = first.length;
      if (others.length > 0) joined.set(first);
      for (const part of others) {
        joined.set(part, offset);
        offset += part.length;
      }
      return { data: joined, shape: [width, inputs] };
    }
    const data = sharedFloats(inputs * width);
    let column = 0;
    for (const { name, outputs } of parts) {
      transposeInto(data, { source: read(name, outputs, inputs), inputs, outputs, width, column });
      column += outputs;
    }
    return { data, shape: [inputs, width] };
  };

  const projection = (prefix: string): Feeds => ({
    inputNorm: vector(`${prefix}.input_layernorm.weight`, hiddenSize),
    projection: matrix(hiddenSize, [
      { name: `${prefix}.self_attn.q_proj.weight`, outputs: queryWidth },
      { name: `${prefix}.self_attn.k_proj.weight`, outputs: keyWidth },
      { name: `${prefix}.self_attn.v_proj.weight`, outputs: keyWidth },
    ]),
    ...(config.architecture === "qwen2" && {
      projectionBias: {
        data: Float32Array.of(
          ...read(`${prefix}.self_attn.q_proj.bias`, queryWidth),
          ...read(`${prefix}.self_attn.k_proj.bias`, keyWidth),
          ...read(`${prefix}.self_attn.v_proj.bias`, keyWidth),
        ),
        shape: [queryWidth + 2 * keyWidth],
      },
    }),
    ...(config.architecture === "qwen3" && {
      queryNorm: vector(`${prefix}.self_attn.q_norm.weight`, headSize),
      keyNorm: vector(`${prefix}.self_attn.k_norm.weight`, headSize),
    }),
  });
  const layer = (prefix: string): Feeds => ({
    output: matrix(queryWidth, [{ name: `${prefix}.self_attn.o_proj.weight`, outputs: hiddenSize }]),
    feedForwardNorm: vector(`${prefix}.post_attention_layernorm.weight`, hiddenSize),
    gateUp: matrix(hiddenSize, [
      { name: `${prefix}.mlp.gate_proj.weight`, outputs: feedForwardSize },
      { name: `${prefix}.mlp.up_proj.weight`, outputs: feedForwardSize },
    ]),
    down: matrix(feedForwardSize, [{ name: `${prefix}.mlp.down_proj.weight`, outputs: hiddenSize }]),
  });

  const prefixes = Array.from({ length: config.layers }, (_, i) => `model.layers.${i}`);
  const embeddingName = "model.embed_tokens.weight";
  return {
    embedding: read(embeddingName, vocabSize, hiddenSize),
    projections: prefixes.map(projection),
    layers: prefixes.map(layer),
    head: {
      finalNorm: vector("model.norm.weight", hiddenSize),
      head: matrix(hiddenSize, [
        { name: config.tiedHead ? embeddingName : "lm_head.weight", outputs: vocabSize },
      ]),
    },
  };
}

/** The same weights in memory that threads share; what is shared already is not copied. */
export function shareWeights({ embedding, projections, layers, head }: DecoderWeights): DecoderWeights {
  // The embedding may be the head, too.
  const done = new Map<Float32Array, Float32Array>();
  const share = (data: Float32Array): Float32Array => {
    if (data.buffer instanceof SharedArrayBuffer) return data;
    const shared = done.get(data) ?? sharedFloats(data.length);
    if (!done.has(data)) shared.set(data);
    done.set(data, shared);
    return shared;
  };
  const shareFeeds = (feeds: Feeds): Feeds =>
    Object.fromEntries(
      Object.entries(feeds).map(([name, { data, shape }]) => [
        name,
        { shape, data: data instanceof Float32Array ? share(data) : data },
      ]),
    );
  return {
    embedding: share(embedding),
    projections: projections.map(shareFeeds),
    layers: layers.map(shareFeeds),
    head: shareFeeds(head),
  };
}

function sharedFloats(length: number): Float32Array {
  return new Float32Array(new SharedArrayBuffer(length * Float32Array.BYTES_PER_ELEMENT));
}

/** Writes an [outputs, inputs] matrix as columns `column` and following of an [inputs, width] matrix. */
function transposeInto(
  target: Float32Array,
  from: {
    readonly source: Float32Array;
    readonly inputs: number;
    readonly outputs: number;
    readonly width: number;
    readonly column: number;
  },
): void {
  const { source, inputs, outputs, width, column } = from;
  // In tiles, so that both sides stay in the processor's cache.
  const tile = 32;
  for (let firstOutput = 0; firstOutput < outputs; firstOutput += tile) {
    const lastOutput = Math.min(firstOutput + tile, outputs);
    for (let i = 0; i < inputs; i++) {
      for (let o = firstOutput; o < lastOutput; o++) {
        target[i * width + column + o] = source[o * inputs + i] ?? 0;
      }
    }
  }
}

function allFinite(data: Float32Array): boolean {
  // The difference is 0, and NaN for a NaN or an infinity; over a whole model this is far quicker than a callback.
  let sum = 0;
  for (let i = 0; i < data.length; i++) sum += (data[i] ?? 0) - (data[i] ?? 0);
  return sum === 0;
}

function invalid(message: string, hint = "Is config.json that of these weights?"): OsmosisError {
  return new OsmosisError("VALIDATION", message, { hint });
}

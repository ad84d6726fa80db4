import { loadRuntime } from "../graph/session.ts";
import type { GraphSession } from "../graph/session.ts";
import type { ModelConfig } from "../model-config.ts";
import { ropeTables } from "../model/decoder.ts";
import { headGraph, layerGraph, projectGraph } from "./decoder-graphs.ts";
import type { DecoderWeights } from "./decoder-weights.ts";
import { KeyValueCache } from "./key-value-cache.ts";
import { BLOCK_ROWS, decoderThreads, productLayoutOf } from "./product-layout.ts";

/** Tokens to run through the decoder: row r belongs to cache slot `firstSlot + r`. */
export type TokenBatch = {
  readonly firstSlot: number;
  readonly rows: readonly {
    readonly tokens: readonly number[];
    /** Position of the first of them; the cache holds all tokens before it. */
    readonly start: number;
  }[];
};

/** Adding it to an attention score makes the probability exactly zero. */
const MASKED = -1e9;

/** A causal language model that runs token by token over a cache; see `decoder-graphs.ts` for why it is cut as it is. */
export class Decoder implements AsyncDisposable {
  readonly cache: KeyValueCache;
  readonly #config: ModelConfig;
  readonly #sessions: Sessions;
  readonly #rotary: ReturnType<typeof ropeTables>;
  #weights: DecoderWeights;

  private constructor(config: ModelConfig, sessions: Sessions, weights: DecoderWeights) {
    this.#config = config;
    this.#sessions = sessions;
    this.#weights = weights;
    this.#rotary = ropeTables(config);
    this.cache = new KeyValueCache(config);
  }

  /** @throws OsmosisError `ENGINE_MISSING` without onnxruntime. */
  static async create(config: ModelConfig, weights: DecoderWeights, threads = 1): Promise<Decoder> {
    const runtime = await loadRuntime({ threads: decoderThreads(config, threads) });
    const sessions = {
      project: await runtime.createSession(projectGraph(config)),
      layer: await runtime.createSession(layerGraph(config, { last: false })),
      lastLayer: await runtime.createSession(layerGraph(config, { last: true })),
      head: await runtime.createSession(headGraph(config)),
    };
    return new Decoder(config, sessions, weights);
  }

  /** Replaces the weights. What the cache holds belongs to the old ones. */
  setWeights(weights: DecoderWeights): void {
    this.#weights = weights;
  }

  /**
   * Runs the tokens, writes their keys and values into the cache, and returns the last hidden states [M, hidden], where
   * row r's token s is at index r * width + s; see `widthOf`. More rows may follow, which stand for nothing.
   */
  async run(batch: TokenBatch): Promise<Float32Array> {
    const { hiddenSize, layers, kvHeads, heads, headSize } = this.#config;
    const { capacity } = this.cache;
    const rowCount = batch.rows.length;
    const width = widthOf(batch);
    const filled = rowCount * width;
    const count =
      productLayoutOf(this.#config) === "plain" ? filled : Math.ceil(filled / BLOCK_ROWS) * BLOCK_ROWS;
    const padding = {
      data: new Float32Array((count - filled) * heads * headSize),
      shape: [count - filled, heads * headSize],
    };
    const mask = { data: maskOf(batch, width, capacity), shape: [rowCount, width, 1, 1, capacity] };
    const q = new Float32Array(filled * heads * headSize);
    const qShape = [rowCount, width, kvHeads, heads / kvHeads, headSize];
    const keysShape = [rowCount, 1, kvHeads, headSize, capacity];
    const valuesShape = [rowCount, 1, kvHeads, capacity, headSize];

    let x = this.#embed(batch, width, count);
    let { qkv } = await this.#sessions.project.run({
      x: { data: x, shape: [count, hiddenSize] },
      ...this.#weights.projections[0],
    });
    for (let layer = 0; layer < layers; layer++) {
      if (qkv === undefined) throw new Error("only the last layer has no projection after it");
      const keys = this.cache.keys(layer, batch.firstSlot, rowCount);
      const values = this.cache.values(layer, batch.firstSlot, rowCount);
      this.#rotateAndWrite(batch, { width, qkv, q, keys, values });
      const session = layer === layers - 1 ? this.#sessions.lastLayer : this.#sessions.layer;
      const result = await session.run({
        x: { data: x, shape: [count, hiddenSize] },
        q: { data: q, shape: qShape },
        keys: { data: keys, shape: keysShape },
        values: { data: values, shape: valuesShape },
        mask,
        padding,
        ...this.#weights.layers[layer],
        ...this.#weights.projections[layer + 1],
      });
      x = result["y"] ?? x;
      qkv = result["qkv"];
    }
    return x;
  }

  /**
   * Probabilities of the next token [M, vocab] after hidden states [M, hidden] as `run` returns them.
   * @param inverseTemperatures_M What each row's logits are multiplied with.
   */
  async probabilities(hidden: Float32Array, inverseTemperatures_M: Float32Array): Promise<Float32Array> {
    const count = inverseTemperatures_M.length;
    const { probabilities } = await this.#sessions.head.run({
      x: { data: hidden, shape: [count, this.#config.hiddenSize] },
      inverseTemperature: { data: inverseTemperatures_M, shape: [count, 1] },
      ...this.#weights.head,
    });
    if (probabilities === undefined) throw new Error("the head has one output");
    return probabilities;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of Object.values(this.#sessions)) await session.release();
  }

  /** Hidden states [count, hidden]. */
  #embed({ rows }: TokenBatch, width: number, count: number): Float32Array {
    const { hiddenSize } = this.#config;
    const { embedding } = this.#weights;
    const x = new Float32Array(count * hiddenSize);
    for (const [r, { tokens }] of rows.entries()) {
      for (const [s, token] of tokens.entries()) {
        const from = token * hiddenSize;
        x.set(embedding.subarray(from, from + hiddenSize), (r * width + s) * hiddenSize);
      }
    }
    return x;
  }

  /** Rotates queries into `q`, scaled for attention, and rotated keys, and values, into the cache. */
  #rotateAndWrite(
    { rows }: TokenBatch,
    arrays: {
      readonly width: number;
      readonly qkv: Float32Array;
      readonly q: Float32Array;
      readonly keys: Float32Array;
      readonly values: Float32Array;
    },
  ): void {
    const { width, qkv, q, keys, values } = arrays;
    const { heads, kvHeads, headSize } = this.#config;
    const { capacity } = this.cache;
    const { cosine, sine } = this.#rotary;
    const half = headSize / 2;
    const scale = 1 / Math.sqrt(headSize);
    const stride = (heads + 2 * kvHeads) * headSize;
    for (const [r, { tokens, start }] of rows.entries()) {
      for (let s = 0; s < tokens.length; s++) {
        const position = start + s;
        const angle = position * half;
        const from = (r * width + s) * stride;
        const to = (r * width + s) * heads * headSize;
        for (let head = 0; head < heads; head++) {
          for (let i = 0; i < half; i++) {
            const a = qkv[from + head * headSize + i] ?? 0;
            const b = qkv[from + head * headSize + half + i] ?? 0;
            const c = cosine[angle + i] ?? 0;
            const d = sine[angle + i] ?? 0;
            q[to + head * headSize + i] = (a * c - b * d) * scale;
            q[to + head * headSize + half + i] = (b * c + a * d) * scale;
          }
        }
        const keysFrom = from + heads * headSize;
        const valuesFrom = keysFrom + kvHeads * headSize;
        for (let head = 0; head < kvHeads; head++) {
          const slotHead = r * kvHeads + head;
          const keysTo = slotHead * headSize * capacity + position;
          for (let i = 0; i < half; i++) {
            const a = qkv[keysFrom + head * headSize + i] ?? 0;
            const b = qkv[keysFrom + head * headSize + half + i] ?? 0;
            const c = cosine[angle + i] ?? 0;
            const d = sine[angle + i] ?? 0;
            keys[keysTo + i * capacity] = a * c - b * d;
            keys[keysTo + (half + i) * capacity] = b * c + a * d;
          }
          const valueFrom = valuesFrom + head * headSize;
          values.set(
            qkv.subarray(valueFrom, valueFrom + headSize),
            (slotHead * capacity + position) * headSize,
          );
        }
      }
    }
  }
}

/**
 * Tokens per row of a batch, the longest row's. A single token is padded to two: a product with one row takes another
 * kernel, whose results differ in the last bits.
 */
export function widthOf({ rows }: TokenBatch): number {
  const width = Math.max(...rows.map(({ tokens }) => tokens.length));
  return rows.length * width === 1 ? 2 : width;
}

type Sessions = {
  readonly project: GraphSession;
  readonly layer: GraphSession;
  readonly lastLayer: GraphSession;
  readonly head: GraphSession;
};

/** Lets each token see itself and what is before it; padding sees the first token only. */
function maskOf({ rows }: TokenBatch, width: number, capacity: number): Float32Array {
  const mask = new Float32Array(rows.length * width * capacity);
  for (const [r, { tokens, start }] of rows.entries()) {
    for (let s = 0; s < width; s++) {
      const visible = s < tokens.length ? start + s + 1 : 1;
      mask.fill(MASKED, (r * width + s) * capacity + visible, (r * width + s + 1) * capacity);
    }
  }
  return mask;
}

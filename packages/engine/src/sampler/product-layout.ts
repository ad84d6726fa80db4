import type { ModelConfig } from "../model-config.ts";

/** Rows of one product in a large model: the width of the widest vector instructions. */
export const BLOCK_ROWS = 16;

/** More numbers than this (32 MB) do not stay in a core's cache from one step to the next. */
const CACHED_WEIGHTS = 2 ** 23;

/**
 * How the decoder multiplies rows with a matrix.
 *
 * - `plain`: rows times [in, out]. A decoder has one thread; several decoders use several cores. For small models, whose
 *   steps cost more in calls than in arithmetic.
 * - `blocked`: [out, in] times blocks of `BLOCK_ROWS` rows that lie as columns; the last block is filled up with zeros.
 *   onnxruntime repacks the right-hand matrix on every call, which is then the small one: twice as fast with 16 rows.
 *   All products have one width, so threads share the rows of the weights and no inner dimension is ever split
 *   differently: the bits are the same with any number of rows and threads, and one decoder uses all cores.
 */
export type ProductLayout = "plain" | "blocked";

export function productLayoutOf(config: ModelConfig): ProductLayout {
  const { hiddenSize, feedForwardSize, layers, vocabSize, heads, kvHeads, headSize } = config;
  const perLayer = hiddenSize * (3 * feedForwardSize + 2 * (heads + kvHeads) * headSize);
  return layers * perLayer + vocabSize * hiddenSize > CACHED_WEIGHTS ? "blocked" : "plain";
}

/**
 * How many threads one decoder may have. Attention of a single row is `2 * kvHeads` products (a single token is padded
 * to two); with no more threads than that none of them is split.
 */
export function decoderThreads(config: ModelConfig, threads: number): number {
  return productLayoutOf(config) === "plain" ? 1 : Math.min(threads, 2 * config.kvHeads);
}

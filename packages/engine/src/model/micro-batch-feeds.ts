import type { TensorData } from "../graph/session.ts";
import type { Datum } from "../service.ts";
import type { MicroBatch } from "./micro-batches.ts";

/** Keeps softmax weights at exactly 0 in 32-bit floats without the NaN that infinities bring. */
const MASKED = -1e9;

export type BatchFeeds = {
  readonly feeds: Readonly<Record<string, TensorData>>;
  readonly dimensions: Readonly<Record<string, number>>;
  /** Token ids of the N rows. */
  readonly tokens_N: BigInt64Array;
  /** Where the S results belong: datum and position. */
  readonly places_S: readonly { readonly index: number; readonly position: number }[];
};

/** Lays a micro-batch out as the inputs of `trainingGraph`. */
export function feedsOf(batch: MicroBatch, data_B: readonly Datum[]): BatchFeeds {
  const { sequences, prefixLength, suffixLength: T } = batch;
  // onnxruntime cannot reshape nothing, so an empty prefix is one row that nobody looks at.
  const P = Math.max(1, prefixLength);
  const B = sequences.length;
  const N = P + B * T;
  const tokens_N = new BigInt64Array(N);
  const positions_N = new BigInt64Array(N);
  const places_S: { index: number; position: number }[] = [];
  const selected: bigint[] = [];
  for (let p = 0; p < P; p++) {
    tokens_N[p] = BigInt(sequences[0]?.tokens_T[p] ?? 0);
    positions_N[p] = BigInt(p);
  }
  for (const [b, { index, tokens_T, targets }] of sequences.entries()) {
    const first = P + b * T;
    for (let t = 0; t < T; t++) {
      // Padding is token 0 behind the end, where no real token looks.
      tokens_N[first + t] = BigInt(tokens_T[prefixLength + t] ?? 0);
      positions_N[first + t] = BigInt(prefixLength + t);
    }
    for (const position of targets) {
      selected.push(BigInt(first + position - 1 - prefixLength));
      places_S.push({ index, position });
    }
  }
  const S = places_S.length;
  const inverse_N = new BigInt64Array(N).fill(BigInt(S));
  for (const [s, row] of selected.entries()) inverse_N[Number(row)] = BigInt(s);
  const column = (pick: (datum: Datum, position: number) => number | undefined): TensorData => ({
    shape: [S, 1],
    data: Float32Array.from(places_S, ({ index, position }) => {
      const datum = data_B[index];
      return (datum && pick(datum, position)) ?? 0;
    }),
  });
  const targets_S = BigInt64Array.from(places_S, ({ index, position }) =>
    BigInt(data_B[index]?.tokens_T[position] ?? 0),
  );
  const suffixMask = causalMask(T, P + T);
  if (prefixLength === 0) for (let t = 0; t < T; t++) suffixMask[t * (P + T)] = MASKED;
  return {
    feeds: {
      tokens: { shape: [N], data: tokens_N },
      positions: { shape: [N, 1], data: positions_N },
      "prefix mask": { shape: [P, P], data: causalMask(P, P) },
      "suffix mask": { shape: [T, P + T], data: suffixMask },
      selected: { shape: [S], data: BigInt64Array.from(selected) },
      inverse: { shape: [N], data: inverse_N },
      targets: { shape: [S, 1], data: targets_S },
      weights: column((datum, position) => datum.weights_T[position]),
      advantages: column((datum, position) => datum.advantages_T[position]),
      "sampler logprobs": column((datum, position) => datum.samplerLogprobs_T[position]),
    },
    dimensions: { P, B, T, S, "B*T": B * T, "P+T": P + T, N },
    tokens_N,
    places_S,
  };
}

/** Row i may look at all columns up to the one that is as far from the end as i is. */
function causalMask(rows: number, columns: number): Float32Array {
  const mask = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++) mask.fill(MASKED, i * columns + columns - rows + i + 1, (i + 1) * columns);
  return mask;
}

import type { GraphSession, Runtime, TensorData } from "../graph/session.ts";
import { clipBounds, hasNoGradient } from "../losses.ts";
import type { ModelConfig } from "../model-config.ts";
import { ropeTables } from "../model/decoder.ts";
import { feedsOf } from "../model/micro-batch-feeds.ts";
import { microBatchCost, planMicroBatches, sequenceOf, type MicroBatch } from "../model/micro-batches.ts";
import { EMBEDDING } from "../model/parameters.ts";
import { EMBEDDED_ROWS_GRADIENT, gradientName, trainingGraph } from "../model/training-graph.ts";
import type { Weights } from "../safetensors.ts";
import type { AdamParams, Datum, ForwardBackwardResult, LossSpec, OptimStepResult } from "../service.ts";
import { adamStep, createAdamState, type AdamState } from "./adam.ts";

export type Adapter = { readonly rank: number; readonly alpha: number; readonly weights: Weights };

/** The trainable half of a model: weights, gradients and optimiser, in the thread that calls it. */
export type Trainer = {
  readonly config: ModelConfig;
  readonly weights: Weights;
  readonly adapter: Adapter | undefined;
  readonly adam: AdamState;
  /** The accumulated gradient by parameter; parameters that no loss has reached yet are absent. */
  readonly gradients: ReadonlyMap<string, Float32Array>;
  /** Sums the loss and, unless `gradient` is false, adds its gradient to the accumulated one. */
  evaluate(
    data_B: readonly Datum[],
    loss: LossSpec,
    options: { readonly temperature: number; readonly gradient: boolean },
  ): Promise<ForwardBackwardResult>;
  /** Applies the accumulated gradient and clears it. */
  optimStep(params: AdamParams): OptimStepResult;
  /** Forgets the accumulated gradient. */
  clearGradient(): void;
  release(): Promise<void>;
};

/**
 * Trains `weights` in place, or `adapter` on top of them. `pause` is awaited between micro-batches, so that the thread
 * can do something else there; data must have passed `checkData`.
 */
export function createTrainer(options: {
  readonly runtime: Runtime;
  readonly config: ModelConfig;
  readonly weights: Weights;
  readonly adapter?: Adapter;
  readonly pause: () => Promise<void>;
}): Trainer {
  const { runtime, config, weights, adapter, pause } = options;
  const trainable = adapter?.weights ?? weights;
  const adam = createAdamState(trainable);
  const gradients = new Map<string, Float32Array>();
  const sessions = new Map<string, Promise<GraphSession>>();
  const cost = microBatchCost(config);
  const { cosine, sine } = ropeTables(config);
  const table = [config.contextLength, config.headSize / 2];
  const fixedFeeds: Record<string, TensorData> = {
    "rope:cosine": { shape: table, data: cosine },
    "rope:sine": { shape: table, data: sine },
    ...Object.fromEntries(weights),
    ...Object.fromEntries(adapter?.weights ?? []),
  };

  function sessionFor(loss: LossSpec["type"], gradient: boolean): Promise<GraphSession> {
    const key = gradient ? loss : `${loss}, forward only`;
    let session = sessions.get(key);
    if (session === undefined) {
      const graph = trainingGraph(config, {
        loss,
        trainable: gradient ? [...trainable.keys()] : [],
        ...(adapter && { adapter: { rank: adapter.rank, scale: adapter.alpha / adapter.rank } }),
      });
      session = runtime.createSession(graph);
      sessions.set(key, session);
    }
    return session;
  }

  function accumulate(name: string, gradient: Float32Array): void {
    const sum = gradients.get(name);
    if (sum === undefined) gradients.set(name, gradient);
    else for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) + (gradient[i] as number); // one length
  }

  function accumulateRows(rows_N: Float32Array, tokens_N: BigInt64Array): void {
    const { hiddenSize } = config;
    const sum = gradients.get(EMBEDDING) ?? new Float32Array(config.vocabSize * hiddenSize);
    gradients.set(EMBEDDING, sum);
    for (const [n, token] of tokens_N.entries()) {
      const target = Number(token) * hiddenSize;
      const source = n * hiddenSize;
      for (let i = 0; i < hiddenSize; i++) {
        sum[target + i] = (sum[target + i] as number) + (rows_N[source + i] as number); // within both tables
      }
    }
  }

  return {
    config,
    weights,
    adapter,
    adam,
    gradients,
    async evaluate(data_B, loss, { temperature, gradient }) {
      const sequences = data_B.map(sequenceOf).filter((sequence) => sequence !== undefined);
      const isFlat = ({ index, targets }: (typeof sequences)[number]): boolean =>
        targets.every((t) => hasNoGradient(loss, data_B[index]?.advantages_T[t] ?? 0));
      // Where every advantage is 0 the gradient is 0, too: half of the samples, often, need no backward pass.
      const flat = gradient ? sequences.filter(isFlat) : sequences;
      const sloped = sequences.filter((sequence) => !flat.includes(sequence));
      const batches: { batch: MicroBatch; backward: boolean }[] = [
        ...planMicroBatches(sloped, cost).map((batch) => ({ batch, backward: true })),
        ...planMicroBatches(flat, cost).map((batch) => ({ batch, backward: false })),
      ];
      const { clipLow, clipHigh } = clipBounds(loss);
      const scalars = {
        "inverse temperature": scalar(1 / temperature),
        "clip low": scalar(clipLow),
        "clip high": scalar(clipHigh),
      };
      const logprobs_B_T = viewsOfOneBuffer(data_B.map(({ tokens_T }) => tokens_T.length));
      let lossSum = 0;
      let entropySum = 0;
      let count = 0;
      for (const { batch, backward } of batches) {
        const session = await sessionFor(loss.type, backward);
        const { feeds, dimensions, tokens_N, places_S } = feedsOf(batch, data_B);
        const results = await session.run({ ...fixedFeeds, ...scalars, ...feeds }, dimensions);
        const { losses = [], logprobs = [], entropies = [] } = results;
        for (const [s, { index, position }] of places_S.entries()) {
          const row = logprobs_B_T[index];
          if (row !== undefined) row[position] = logprobs[s] ?? 0;
          lossSum += losses[s] ?? 0;
          entropySum += entropies[s] ?? 0;
        }
        count += places_S.length;
        if (backward) {
          for (const name of trainable.keys()) {
            const contribution = results[gradientName(name)];
            if (contribution !== undefined) accumulate(name, contribution);
          }
          const rows = results[EMBEDDED_ROWS_GRADIENT];
          if (rows !== undefined) accumulateRows(rows, tokens_N);
        }
        await pause();
      }
      return { loss: lossSum, logprobs_B_T, entropy: count === 0 ? 0 : entropySum / count };
    },
    optimStep(params) {
      for (const [name, { data }] of trainable) {
        if (!gradients.has(name)) gradients.set(name, new Float32Array(data.length));
      }
      const result = adamStep(trainable, gradients, adam, params);
      gradients.clear();
      return result;
    },
    clearGradient: () => gradients.clear(),
    async release() {
      for (const session of sessions.values()) await (await session).release();
      sessions.clear();
    },
  };
}

/** One buffer moves to another thread faster than many. */
function viewsOfOneBuffer(lengths: readonly number[]): Float32Array[] {
  const all = new Float32Array(lengths.reduce((sum, length) => sum + length, 0));
  let offset = 0;
  return lengths.map((length) => all.subarray(offset, (offset += length)));
}

function scalar(value: number): TensorData {
  return { shape: [], data: Float32Array.of(value) };
}

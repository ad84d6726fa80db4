import type { TensorData } from "../graph/session.ts";
import { clipBounds, hasNoGradient } from "../losses.ts";
import type { ModelConfig } from "../model-config.ts";
import { ropeTables } from "../model/decoder.ts";
import { feedsOf, type BatchFeeds } from "../model/micro-batch-feeds.ts";
import { microBatchCost, planMicroBatches, sequenceOf } from "../model/micro-batches.ts";
import { EMBEDDING } from "../model/parameters.ts";
import { EMBEDDED_ROWS_GRADIENT, gradientName, trainingGraph } from "../model/training-graph.ts";
import type { Weights } from "../safetensors.ts";
import type { AdamParams, Datum, ForwardBackwardResult, LossSpec, OptimStepResult } from "../service.ts";
import { adamStep, createAdamState, type AdamState } from "./adam.ts";
import type { BatchRunner, Feeds, Job, JobResults } from "./batch-runner.ts";

export type Adapter = { readonly rank: number; readonly alpha: number; readonly weights: Weights };

/** The trainable half of a model: weights, gradients and optimiser, in the thread that calls it. */
export type Trainer = {
  readonly config: ModelConfig;
  readonly weights: Weights;
  readonly adapter: Adapter | undefined;
  readonly adam: AdamState;
  /** The accumulated gradient by parameter; parameters that no loss has reached yet are absent. */
  readonly gradients: ReadonlyMap<string, Float32Array>;
  /**
   * Sums the loss and, unless `gradient` is false, adds its gradient to the accumulated one. When it throws, the
   * accumulated gradient is lost.
   */
  evaluate(
    data_B: readonly Datum[],
    loss: LossSpec,
    options: { readonly temperature: number; readonly gradient: boolean },
  ): Promise<ForwardBackwardResult>;
  /** Applies the accumulated gradient and clears it. */
  optimStep(params: AdamParams): OptimStepResult;
  /** Tells that weights and optimiser were replaced from outside; forgets the accumulated gradient. */
  stateReplaced(): void;
  release(): Promise<void>;
};

/** Trains `weights` in place, or `adapter` on top of them. Data must have passed `checkData`. */
export function createTrainer(options: {
  readonly config: ModelConfig;
  readonly weights: Weights;
  readonly adapter?: Adapter;
  /** Nothing is trained: there are log probabilities, but no gradients, and no memory for them. */
  readonly frozen?: boolean;
  /** Where micro-batches run: gets everything that is fed to all of them, and the names of what training changes. */
  readonly openRunner: (parameters: Feeds, changing: readonly string[]) => BatchRunner;
}): Trainer {
  const { config, weights, adapter, openRunner } = options;
  const trainable: Weights = options.frozen === true ? new Map() : (adapter?.weights ?? weights);
  const adam = createAdamState(trainable);
  const gradients = new Map<string, Float32Array>();
  const cost = microBatchCost(config);
  const { cosine, sine } = ropeTables(config);
  const table = [config.contextLength, config.headSize / 2];
  const parameters: Feeds = {
    "rope:cosine": { shape: table, data: cosine },
    "rope:sine": { shape: table, data: sine },
    ...Object.fromEntries(weights),
    ...Object.fromEntries(adapter?.weights ?? []),
  };
  const runner = openRunner(parameters, [...trainable.keys()]);

  /** Prepares the graph of a loss, with gradients or without; returns its name. */
  async function graphFor(loss: LossSpec["type"], gradient: boolean): Promise<string> {
    const name = gradient ? loss : `${loss}, forward only`;
    await runner.prepare(name, () =>
      trainingGraph(config, {
        loss,
        trainable: gradient ? [...trainable.keys()] : [],
        ...(adapter && { adapter: { rank: adapter.rank, scale: adapter.alpha / adapter.rank } }),
      }),
    );
    return name;
  }

  /** Cuts the data into jobs. Where every advantage is 0 the gradient is 0, too, and no backward pass is needed. */
  async function jobsOf(
    data_B: readonly Datum[],
    loss: LossSpec,
    options: { readonly temperature: number; readonly gradient: boolean },
  ): Promise<{ readonly job: Job; readonly batch: BatchFeeds }[]> {
    const sequences = data_B.map(sequenceOf).filter((sequence) => sequence !== undefined);
    const { sloped = [], flat = [] } = Object.groupBy(sequences, ({ index, targets }) =>
      options.gradient && targets.some((t) => !hasNoGradient(loss, data_B[index]?.advantages_T[t] ?? 0))
        ? "sloped"
        : "flat",
    );
    const { clipLow, clipHigh } = clipBounds(loss);
    const scalars: Feeds = {
      "inverse temperature": scalar(1 / options.temperature),
      "clip low": scalar(clipLow),
      "clip high": scalar(clipHigh),
    };
    const jobs: { readonly job: Job; readonly batch: BatchFeeds }[] = [];
    for (const [part, gradient] of [
      [sloped, true],
      [flat, false],
    ] as const) {
      if (part.length === 0) continue;
      const graph = await graphFor(loss.type, gradient);
      for (const planned of planMicroBatches(part, cost)) {
        const batch = feedsOf(planned, data_B);
        const { feeds, dimensions, tokens_N } = batch;
        const passes = gradient ? 3 : 1;
        jobs.push({
          job: { graph, feeds: { ...scalars, ...feeds }, dimensions, cost: passes * tokens_N.length },
          batch,
        });
      }
    }
    return jobs;
  }

  function accumulateAll(results: JobResults, { tokens_N }: BatchFeeds): void {
    for (const name of trainable.keys()) {
      const contribution = results[gradientName(name)];
      if (contribution !== undefined) accumulate(name, contribution);
    }
    const rows = results[EMBEDDED_ROWS_GRADIENT];
    if (rows !== undefined) accumulateRows(rows, tokens_N);
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
    async evaluate(data_B, loss, evaluation) {
      const jobs = await jobsOf(data_B, loss, evaluation);
      const logprobs_B_T = viewsOfOneBuffer(data_B.map(({ tokens_T }) => tokens_T.length));
      let lossSum = 0;
      let entropySum = 0;
      let count = 0;
      const onResults = (i: number, results: JobResults): void => {
        const batch = jobs[i]?.batch;
        if (batch === undefined) throw new Error(`there is no job ${i}`);
        const { losses = [], logprobs = [], entropies = [] } = results;
        for (const [s, { index, position }] of batch.places_S.entries()) {
          const row = logprobs_B_T[index];
          if (row !== undefined) row[position] = logprobs[s] ?? 0;
          lossSum += losses[s] ?? 0;
          entropySum += entropies[s] ?? 0;
        }
        count += batch.places_S.length;
        accumulateAll(results, batch);
      };
      try {
        await runner.run(
          jobs.map(({ job }) => job),
          onResults,
        );
      } catch (error) {
        // Some of the micro-batches may have been added.
        gradients.clear();
        throw error;
      }
      return { loss: lossSum, logprobs_B_T, entropy: count === 0 ? 0 : entropySum / count };
    },
    optimStep(params) {
      for (const [name, { data }] of trainable) {
        if (!gradients.has(name)) gradients.set(name, new Float32Array(data.length));
      }
      const result = adamStep(trainable, gradients, adam, params);
      gradients.clear();
      runner.parametersChanged();
      return result;
    },
    stateReplaced() {
      gradients.clear();
      runner.parametersChanged();
    },
    release: () => runner.release(),
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

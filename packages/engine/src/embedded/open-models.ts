import { OsmosisError } from "@osmosis/protocol";
import type { CallFlags } from "../graph/native-calls.ts";
import { loadRuntime } from "../graph/session.ts";
import type { ModelConfig } from "../model-config.ts";
import { initialiseAdapter } from "../model/adapter.ts";
import { readModelFolder } from "../model/model-folder.ts";
import type { Weights } from "../safetensors.ts";
import type {
  AdamParams,
  Datum,
  ForwardBackwardResult,
  LossSpec,
  ModelSource,
  SampleRequest,
  TrainMethod,
} from "../service.ts";
import { readAdapterFolder } from "../training/adapter-folder.ts";
import { checkData } from "../training/check-data.ts";
import { loadState, saveState, saveWeights } from "../training/checkpoint.ts";
import { mergeAdapter } from "../training/merge.ts";
import { createTrainer, type Adapter, type Trainer } from "../training/trainer.ts";
import { chooseRunner } from "./choose-runner.ts";
import type { OpenSamplingEngine, SamplingEngine } from "./sampling-engine.ts";

type Environment = {
  readonly threads: number;
  readonly callFlags: CallFlags;
  readonly openSamplingEngine: OpenSamplingEngine;
  /** Lets the thread's other work through. */
  readonly pause: () => Promise<void>;
};

/** A model that can only be sampled. */
export type OpenSampler = {
  readonly config: ModelConfig;
  sample(request: SampleRequest): ReturnType<SamplingEngine["sample"]>;
  endConversation(conversation: string): void;
  close(): Promise<void>;
};

/** A model that only says how probable sequences are. */
export type OpenScorer = {
  readonly config: ModelConfig;
  score(
    data_B: readonly Datum[],
    options: { readonly temperature: number },
  ): Promise<Pick<ForwardBackwardResult, "logprobs_B_T">>;
  close(): Promise<void>;
};

/** A model under training. Its training calls run one after the other, in the order in which they were made. */
export type OpenModel = OpenSampler & {
  evaluate(
    data_B: readonly Datum[],
    loss: LossSpec,
    options: { readonly temperature: number; readonly gradient: boolean },
  ): ReturnType<Trainer["evaluate"]>;
  optimStep(params: AdamParams): Promise<ReturnType<Trainer["optimStep"]>>;
  syncSampler(): Promise<number>;
  saveWeights(folder: string): Promise<void>;
  saveState(folder: string): Promise<void>;
  loadState(folder: string): Promise<void>;
};

export async function openSampler(environment: Environment, source: ModelSource): Promise<OpenSampler> {
  const { config, weights } = await readMerged(environment, source);
  const engine = await environment.openSamplingEngine({ config, weights, version: 0 });
  return { config, ...samplingHalf(engine) };
}

export async function openScorer(environment: Environment, source: ModelSource): Promise<OpenScorer> {
  const { config, weights } = await readMerged(environment, source);
  const openRunner = await chooseRunner(weights, environment);
  const trainer = createTrainer({ config, weights, openRunner, frozen: true });
  const inOrder = createQueue();
  return {
    config,
    score: (data_B, { temperature }) =>
      inOrder(async () => {
        const loss = { type: "cross_entropy" } as const;
        checkData(data_B, loss, config);
        const { logprobs_B_T } = await trainer.evaluate(data_B, loss, { temperature, gradient: false });
        return { logprobs_B_T };
      }),
    close: () => inOrder(() => trainer.release()),
  };
}

/** A model with the effect of its adapter in its own weights. */
async function readMerged(
  { threads }: Environment,
  source: ModelSource,
): Promise<{ readonly config: ModelConfig; readonly weights: Weights }> {
  const { config, weights } = await readModelFolder(source.folder);
  if (source.adapter === undefined) return { config, weights };
  const adapter = await readAdapterFolder(source.adapter, config);
  return { config, weights: await mergeAdapter(await loadRuntime({ threads }), config, weights, adapter) };
}

export async function openModel(
  environment: Environment,
  source: ModelSource,
  options: { readonly method: TrainMethod; readonly seed: number },
): Promise<OpenModel> {
  const { threads, openSamplingEngine } = environment;
  const runtime = await loadRuntime({ threads });
  const { config, weights: stored } = await readModelFolder(source.folder);
  const given = source.adapter === undefined ? undefined : await readAdapterFolder(source.adapter, config);
  const adapter = adapterFor(options, config, given);
  // Full fine-tuning starts from the adapter's effect; there is nowhere else to keep it.
  const weights =
    given !== undefined && adapter === undefined
      ? await mergeAdapter(runtime, config, stored, given)
      : stored;
  /** The weights as they are now, in arrays that training does not touch. */
  async function snapshot(): Promise<Weights> {
    if (adapter !== undefined) return mergeAdapter(runtime, config, weights, adapter);
    return new Map([...weights].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }]));
  }
  const engine = await openSamplingEngine({ config, weights: await snapshot(), version: 0 });
  const openRunner = await chooseRunner(weights, environment);
  const trainer = createTrainer({ config, weights, openRunner, ...(adapter && { adapter }) });

  async function sync(): Promise<number> {
    engine.setWeights(await snapshot(), trainer.adam.step);
    return trainer.adam.step;
  }
  const inOrder = createQueue();
  return {
    config,
    ...samplingHalf(engine),
    evaluate: (data_B, loss, evaluation) =>
      inOrder(async () => {
        checkData(data_B, loss, config);
        return trainer.evaluate(data_B, loss, evaluation);
      }),
    optimStep: (params) => inOrder(async () => trainer.optimStep(params)),
    syncSampler: () => inOrder(sync),
    saveWeights: (folder) => inOrder(() => saveWeights(trainer, folder, source.folder)),
    saveState: (folder) => inOrder(() => saveState(trainer, folder)),
    loadState: (folder) =>
      inOrder(async () => {
        await loadState(trainer, folder);
        await sync();
      }),
    close: () =>
      inOrder(async () => {
        await engine.close();
        await trainer.release();
      }),
  };
}

function adapterFor(
  { method, seed }: { readonly method: TrainMethod; readonly seed: number },
  config: ModelConfig,
  given: Adapter | undefined,
): Adapter | undefined {
  if (method.type === "full") return undefined;
  const { rank, alpha, layers } = method;
  if (given === undefined) return { rank, alpha, weights: initialiseAdapter(config, rank, seed, layers) };
  if (given.rank === rank && given.alpha === alpha) return given;
  throw new OsmosisError(
    "VALIDATION",
    `The adapter has rank ${given.rank} and alpha ${given.alpha}, the run asks for ${rank} and ${alpha}.`,
    { hint: "Train with the adapter's own rank and alpha, or start from the base model." },
  );
}

function samplingHalf(engine: SamplingEngine): Omit<OpenSampler, "config"> {
  return {
    sample: (request) => engine.sample(request),
    endConversation: (conversation) => engine.endConversation(conversation),
    close: () => engine.close(),
  };
}

/** Runs tasks one after the other; one that fails does not stop the next. */
function createQueue(): <T>(task: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (task) => {
    const result = last.then(task, task);
    last = result.catch(() => {});
    return result;
  };
}

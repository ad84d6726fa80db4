/**
 * Who trains, and who samples from a checkpoint: the engine of this worker, or a trainer by URL. The platform's own trainer
 * comes with the job, as secrets do: workers anywhere have it then, and its key is in no file of theirs and in no answer
 * to a user.
 */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import {
  REFERENCE_FILE,
  createRemoteService,
  readModelConfig,
  readReference,
  type ModelSource,
  type Sampler,
  type TrainingService,
} from "@osmosis/engine";
import {
  OsmosisError,
  contradictionsByUrl,
  type Job,
  type ReplayJob,
  type TrainingJob,
} from "@osmosis/protocol";

type Parts = {
  readonly tools: {
    readonly openService: () => Promise<TrainingService>;
    readonly fetch?: typeof fetch;
    readonly trainerPatienceMs?: number;
  };
  /** Told what is different with a trainer. */
  readonly notice: (text: string) => void;
  readonly signal: AbortSignal;
};

type Keys = Pick<Job, "env" | "secrets"> & { readonly trainer?: Job["trainer"] };

type Chosen = { readonly url: string; readonly apiKey: string; readonly apiKeyName?: string };

/** Servers without accounts take any key; this one looks like a key to those that look. */
const NO_KEY = "tml-none";

/**
 * The service that trains the model of a job. Sources are folders of this worker in any case: a trainer by URL is told the
 * name of the model instead.
 *
 * @throws OsmosisError `VALIDATION` for what a trainer by URL cannot do, and without its key.
 */
export async function openTrainer(
  job: TrainingJob | ReplayJob,
  source: ModelSource,
  { tools, notice, signal }: Parts,
): Promise<TrainingService> {
  const { advanced } = job.config;
  const chosen = trainerOf(job);
  if (chosen === undefined) return await tools.openService();
  // The platform may have got its trainer after the run was queued.
  const [fault] = contradictionsByUrl(advanced, chosen.url);
  if (fault !== undefined) {
    throw new OsmosisError("VALIDATION", `[advanced].${fault.key} ${fault.message}.`, {
      hint: 'Change it, or set [advanced].trainer = "embedded", and submit the run again.',
    });
  }
  const { contextLength, vocabSize } = await readModelConfig(source.folder);
  const service = createRemoteService({
    ...chosen,
    ...connection(tools),
    contextLength,
    vocabSize,
    ...(advanced.trainer_reduction !== undefined && { reduction: advanced.trainer_reduction }),
    notice,
    signal,
  });
  notice(`Training at ${chosen.url}`);
  if (advanced.asynchronous && advanced.max_staleness > 0) {
    // Nothing on the wire tells it.
    notice(
      "The run samples while it trains: the trainer has to sample from weights as they were handed over, not from those " +
        "under training. SkyRL on JAX keeps one copy of both; there, set [advanced].asynchronous = false.",
    );
  }
  const own = job.model.type === "local" ? job.model.base_model : job.model.name;
  const teacher = job.teacher?.type === "local" ? job.teacher.base_model : own;
  const nameOf = (folder: string) => (folder === source.folder ? (advanced.trainer_model ?? own) : teacher);
  return named(service, nameOf);
}

/**
 * A sampler with the weights of a source: where they are, that is, at a trainer when the adapter is a reference.
 *
 * @throws OsmosisError `VALIDATION` without the trainer's key.
 */
export async function openSamplerOf(
  job: Keys,
  source: ModelSource,
  parts: Parts & { readonly opened: AsyncDisposableStack },
): Promise<Sampler> {
  const { opened, tools, signal } = parts;
  const { adapter, folder } = source;
  if (adapter === undefined || (await isThere(join(adapter, "adapter_model.safetensors")))) {
    const service = opened.use(await tools.openService());
    return opened.use(await service.openSampler(source));
  }
  if (!(await isThere(join(adapter, REFERENCE_FILE)))) {
    throw new OsmosisError("VALIDATION", "The checkpoint has neither weights nor a reference to them.");
  }
  const reference = await readReference(adapter);
  if (reference.url === undefined || reference.base_model === undefined) {
    throw new OsmosisError("VALIDATION", "The checkpoint does not say which trainer holds its weights.");
  }
  const { url, base_model: name, api_key_name: keyName } = reference;
  const { contextLength, vocabSize } = await readModelConfig(folder);
  const apiKey = keyName === undefined ? platformKey(job, url) : secretOf(job, keyName);
  const service = opened.use(
    createRemoteService({
      url,
      apiKey,
      ...connection(tools),
      contextLength,
      vocabSize,
      notice: parts.notice,
      signal,
    }),
  );
  parts.notice(`Sampling at ${url}, which holds the weights`);
  return opened.use(await service.openSampler({ folder: name, adapter }));
}

function connection({ fetch: given = fetch, trainerPatienceMs: patienceMs }: Parts["tools"]) {
  return { fetch: given, ...(patienceMs !== undefined && { patienceMs }) };
}

function trainerOf(job: TrainingJob | ReplayJob): Chosen | undefined {
  const { trainer, trainer_api_key: keyName } = job.config.advanced;
  if (trainer === "embedded") return undefined;
  if (trainer === undefined) {
    return job.trainer === undefined
      ? undefined
      : { url: job.trainer.url, apiKey: job.trainer.api_key ?? NO_KEY };
  }
  if (keyName === undefined) return { url: trainer, apiKey: platformKey(job, trainer) };
  return { url: trainer, apiKey: secretOf(job, keyName), apiKeyName: keyName };
}

/** The platform's key goes to the platform's trainer only. */
function platformKey({ trainer }: Keys, url: string): string {
  return (trainer?.url === url ? trainer.api_key : undefined) ?? NO_KEY;
}

function secretOf({ env, secrets }: Keys, name: string): string {
  const value = { ...env, ...secrets }[name];
  if (value !== undefined) return value;
  throw new OsmosisError("VALIDATION", `The trainer needs the secret ${name}.`, {
    hint: `Add "${name}" to [secrets].required and set it with osmosis secret set.`,
  });
}

/** A service that is told names where its caller has folders. */
function named(service: TrainingService, nameOf: (folder: string) => string): TrainingService {
  const translate = (source: ModelSource): ModelSource => ({ ...source, folder: nameOf(source.folder) });
  return {
    openSampler: (source) => service.openSampler(translate(source)),
    openScorer: (source) => service.openScorer(translate(source)),
    createModel: (source, options) => service.createModel(translate(source), options),
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  };
}

async function isThere(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}

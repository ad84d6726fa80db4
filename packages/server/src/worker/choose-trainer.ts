/**
 * Who trains, and who samples from a checkpoint: the engine of this worker, or a trainer by URL. The platform's own trainer
 * comes with the job, as secrets do: workers anywhere have it then, and its key is in no file of theirs and in no answer
 * to a user.
 */
import {
  createRemoteService,
  readModelSize,
  readReference,
  type ModelSource,
  type Sampler,
  type TrainingService,
} from "@osmosis/engine";
import {
  OsmosisError,
  contradictionsByUrl,
  weightsAreHere,
  type Job,
  type ModelAssignment,
  type ReplayJob,
  type TrainerChoice,
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

type LocalModel = Extract<ModelAssignment, { type: "local" }>;

/** A trainer by URL; `baseModel` is its name for the base of weights that it holds. */
type Chosen = {
  readonly url: string;
  readonly apiKey: string;
  readonly apiKeyName?: string;
  readonly baseModel?: string;
};

/** Servers without accounts take any key; this one looks like a key to those that look. */
const NO_KEY = "tml-none";

/**
 * The service that trains the model of a job. Sources are folders of this worker in any case: a trainer by URL is told the
 * name of the model instead.
 *
 * @throws OsmosisError `VALIDATION` for what a trainer by URL cannot do, without its key, and for the engine of this worker
 * where it has not all weights.
 */
export async function openTrainer(
  job: (TrainingJob | ReplayJob) & { readonly model: LocalModel },
  source: ModelSource,
  { tools, notice, signal }: Parts,
): Promise<TrainingService> {
  const { advanced } = job.config;
  const { model, teacher } = job;
  const frozen = teacher?.type === "local" ? teacher : undefined;
  const chosen = await trainerOf(job, source);
  if (chosen === undefined) {
    const missing = [model, frozen].find((one) => one !== undefined && !weightsAreHere(one));
    if (missing !== undefined) throw noWeights(missing);
    return await tools.openService();
  }
  // The platform may have got its trainer after the run was queued.
  const [fault] = contradictionsByUrl(advanced, chosen.url);
  if (fault !== undefined) {
    throw new OsmosisError("VALIDATION", `[advanced].${fault.key} ${fault.message}.`, {
      hint: weightsAreHere(model)
        ? 'Change it, or set [advanced].trainer = "embedded", and submit the run again.'
        : "Change it, and submit the run again.",
    });
  }
  const whole = [model, frozen].find((one) => one !== undefined && isWhole(one));
  if (whole !== undefined) {
    throw new OsmosisError(
      "VALIDATION",
      `${whole.name} is a whole model of this platform: its weights cannot be sent to a trainer by URL.`,
      { hint: 'Name a base model, or set [advanced].trainer = "embedded", and submit the run again.' },
    );
  }
  const service = createRemoteService({
    ...chosen,
    ...connection(tools),
    ...(await readModelSize(source.folder)),
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
  const own = advanced.trainer_model ?? chosen.baseModel ?? model.base_model;
  // The teacher may have the same base, whose name at the trainer is that of the model then.
  const teachers = frozen === undefined || frozen.base_model === model.base_model ? own : frozen.base_model;
  return named(service, (folder) => (folder === source.folder ? own : teachers));
}

/** The trainer that a run names, else the one that has the weights of its model, else the platform's. */
async function trainerOf(
  job: Parameters<typeof openTrainer>[0],
  source: ModelSource,
): Promise<Chosen | undefined> {
  const { advanced } = job.config;
  if (advanced.trainer === "embedded") return undefined;
  return byName(job, advanced) ?? (await holderOf(job, source)) ?? ofPlatform(job);
}

/**
 * A sampler with the weights of a source: of a checkpoint where they are, at a trainer when only a reference to them is
 * here; of a base model at the trainer that is named, else here, else at the platform's.
 *
 * @throws OsmosisError `VALIDATION` without the trainer's key, and where nobody is known to have the weights.
 */
export async function openSamplerOf(
  job: Keys & { readonly model: LocalModel; readonly trainer_choice: TrainerChoice },
  source: ModelSource,
  parts: Parts & { readonly opened: AsyncDisposableStack },
): Promise<Sampler> {
  const { opened, tools, notice, signal } = parts;
  const { model, trainer_choice: choice } = job;
  const chosen = model.name === model.base_model ? ofBase(job) : await holderOf(job, source);
  if (chosen === undefined) {
    if (!weightsAreHere(model)) throw noWeights(model);
    const service = opened.use(await tools.openService());
    return opened.use(await service.openSampler(source));
  }
  const size = await readModelSize(source.folder);
  const service = opened.use(
    createRemoteService({ ...chosen, ...connection(tools), ...size, notice, signal }),
  );
  notice(`Sampling at ${chosen.url}, which holds the weights`);
  const name = chosen.baseModel ?? choice.trainer_model ?? model.base_model;
  return opened.use(await service.openSampler({ ...source, folder: name }));
}

function ofBase(job: Parameters<typeof openSamplerOf>[0]): Chosen | undefined {
  const { model, trainer_choice: choice } = job;
  const isHere = choice.trainer === "embedded" || weightsAreHere(model);
  return byName(job, choice) ?? (isHere ? undefined : ofPlatform(job));
}

/** A checkpoint of all weights; what a trainer has of it is the base that it began with. */
function isWhole(model: LocalModel): boolean {
  return model.name !== model.base_model && model.adapter_files.length === 0;
}

/** The engine was chosen, or no trainer by URL is there to be chosen. */
function noWeights({ name }: LocalModel): OsmosisError {
  return new OsmosisError(
    "VALIDATION",
    `${name} has no weights here, so the engine of a worker cannot open it.`,
    {
      hint: "Set [advanced].trainer to the address of the trainer that has them, or let the platform have it as its own, by OSMOSIS_TRAINER_URL.",
    },
  );
}

function connection({ fetch: given = fetch, trainerPatienceMs: patienceMs }: Parts["tools"]) {
  return { fetch: given, ...(patienceMs !== undefined && { patienceMs }) };
}

function byName(keys: Keys, { trainer: url, trainer_api_key: keyName }: TrainerChoice): Chosen | undefined {
  if (url === undefined || url === "embedded") return undefined;
  return { url, ...keyOf(keys, url, keyName) };
}

function ofPlatform({ trainer }: Keys): Chosen | undefined {
  return trainer && { url: trainer.url, apiKey: trainer.api_key ?? NO_KEY };
}

/** The trainer that has the weights of a checkpoint which are not all here. */
async function holderOf(
  job: Keys & { readonly model: LocalModel },
  { adapter }: ModelSource,
): Promise<Chosen | undefined> {
  if (adapter === undefined || weightsAreHere(job.model)) return undefined;
  const { url, base_model: baseModel, api_key_name: keyName } = await readReference(adapter);
  if (url === undefined || baseModel === undefined) {
    throw new OsmosisError("VALIDATION", "The checkpoint does not say which trainer holds its weights.");
  }
  return { url, baseModel, ...keyOf(job, url, keyName) };
}

function keyOf(keys: Keys, url: string, keyName: string | undefined): Pick<Chosen, "apiKey" | "apiKeyName"> {
  if (keyName === undefined) return { apiKey: platformKey(keys, url) };
  return { apiKey: secretOf(keys, keyName), apiKeyName: keyName };
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

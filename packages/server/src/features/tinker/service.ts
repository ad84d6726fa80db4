import { rm } from "node:fs/promises";
import { join } from "node:path";
import { randomInt, randomUUID } from "node:crypto";
import type { ForwardBackwardResult, ModelSource, TrainMethod } from "@osmosis/engine";
import {
  OsmosisError,
  encodeForwardBackwardOutput,
  type TinkerCreateModel,
  type TinkerCreateSamplingSession,
  type TinkerForwardBackward,
  type TinkerLoadWeights,
  type TinkerOptimStep,
  type TinkerSample,
  type TinkerSaveForSampler,
  type TinkerSaveWeights,
} from "@osmosis/protocol";
import type { z } from "zod";
import type { Platform } from "../../platform.ts";
import { createBaseFolders, type BaseFolder } from "./base-folders.ts";
import { createCheckpoints, type Checkpoint } from "./checkpoints.ts";
import { datumOf, lossOf, outputOf } from "./datum.ts";
import { createEngineHost } from "./engine-host.ts";
import { startInTurn } from "./in-turn.ts";
import { NoPlace, placesTaken } from "./places.ts";
import { createPromises, type Outcome, type Result } from "./promises.ts";
import { sampleFrom } from "./sampling.ts";
import { createSessions, type LiveModel, type Sampling, type Session } from "./sessions.ts";

const SWEEP_MS = 10_000;

/** Below the 45 seconds that clients wait. */
const LONG_POLL_MS = 30_000;

/** What starts something slow answers; the result is asked for by this id. */
export type Started = {
  readonly request_id: string;
  readonly model_id?: string;
  /** Of sampling: a name for each sample. */
  readonly sample_sequence_ids?: readonly string[];
};

export type Tinker = ReturnType<typeof createTinker>;

/**
 * The trainer that other programs use over the Tinker wire. Every verb takes whose it is; what belongs to somebody else
 * is not found. Verbs that answer `Started` go on by themselves, in the order of `seq_id` for each model; the same
 * request is the same promise, so a repeated one is never executed twice.
 */
export function createTinker(parts: Pick<Platform, "config" | "now" | "log" | "db" | "blobs">) {
  const { config, now, log, db, blobs } = parts;
  const host = createEngineHost();
  const stopping = new AbortController();
  const promises = createPromises({
    now,
    log: (entry) => {
      if (!stopping.signal.aborted) log(entry);
    },
  });
  const sessions = createSessions({ host, now });
  const baseModels = createBaseFolders({
    db,
    blobs,
    cacheFolder: join(config.dataFolder, "cache", "trainer"),
  });
  const checkpoints = createCheckpoints({ folder: join(config.dataFolder, "tinker"), now });

  async function sweep(): Promise<void> {
    promises.sweep();
    await sessions.sweep();
  }
  const timer = setInterval(() => {
    sweep().catch((error: unknown) =>
      log({ level: "error", message: `Sessions of the trainer could not be closed: ${String(error)}` }),
    );
  }, SWEEP_MS);
  timer.unref();

  const submit = (
    model: LiveModel,
    request: { readonly seq_id: number },
    task: () => Promise<Result>,
  ): Started => startInTurn(promises, model, request, task);

  /** Makes a model whose first request is number 1; making it is number 0, whose answer is `body` with the model's id. */
  function startModel(
    session: Session,
    { request, modelSeqId, body }: { request: object; modelSeqId: number; body: object },
    made: () => Promise<{
      readonly base: BaseFolder;
      readonly method: TrainMethod;
      readonly seed: number;
      readonly source: ModelSource;
      readonly state?: string;
    }>,
  ): Started {
    const id = `${session.id}:train:${modelSeqId}`;
    const promise = `${id}:0`;
    // Its promise may be forgotten while the model is there.
    const known = session.models.get(id);
    promises.start({ id: promise, owner: session.owner, request }, async () => {
      if (known !== undefined) {
        await known.opened;
        return { body: { ...body, model_id: id } };
      }
      const { base, method, seed, source, state } = await made();
      const open = async () => {
        const opened = await host.createModel(source, { method, seed });
        try {
          if (state !== undefined) await opened.loadState(state);
        } catch (error) {
          await opened[Symbol.asyncDispose]();
          throw error;
        }
        return opened;
      };
      try {
        await sessions.addModel(session, { id, base, method, seed }, open).opened;
      } catch (error) {
        throw error instanceof NoPlace ? await placesTaken(db, session.owner, error) : error;
      }
      return { body: { ...body, model_id: id } };
    });
    return { request_id: promise, model_id: id };
  }

  function sourceOf(base: BaseFolder, method: TrainMethod, weights: string): ModelSource {
    return method.type === "full" ? { folder: weights } : { folder: base.folder, adapter: weights };
  }

  async function sourceOfCheckpoint(checkpoint: Checkpoint) {
    const base = await baseModels.open(checkpoint.base_model);
    return { base, source: sourceOf(base, checkpoint.method, checkpoint.weights) };
  }

  async function samplingSource(
    owner: string,
    wanted: { base_model?: string | null | undefined; model_path?: string | null | undefined },
  ) {
    if (wanted.model_path != null) {
      const { base, source } = await sourceOfCheckpoint(await checkpoints.find(wanted.model_path, owner));
      return { base, source, modelPath: wanted.model_path };
    }
    if (wanted.base_model == null) {
      throw new OsmosisError("VALIDATION", "Sampling needs a base_model or a model_path.");
    }
    const base = await baseModels.open(wanted.base_model);
    return { base, source: { folder: base.folder } };
  }

  return {
    baseModels,
    checkpoints,
    sessions,
    sweep,
    /** Whether somebody samples just now. */
    isSampling: host.isSampling,

    createModel(owner: string, wanted: TinkerCreateModel): Started {
      const session = sessions.get(owner, wanted.session_id);
      const body = { type: "create_model" };
      return startModel(session, { request: wanted, modelSeqId: wanted.model_seq_id, body }, async () => {
        const lora = wanted.lora_config;
        const method: TrainMethod = lora == null ? { type: "full" } : adapterOf(lora);
        const base = await baseModels.open(wanted.base_model);
        const seed = lora?.seed ?? randomInt(2 ** 31);
        return { base, method, seed, source: { folder: base.folder } };
      });
    },

    unloadModel(owner: string, modelId: string): Started {
      const id = `${modelId}:unload`;
      // Whoever did not hear of it asks again for a model that is gone.
      if (!promises.isKnown(id, owner)) {
        const model = sessions.model(owner, modelId);
        promises.start({ id, owner, request: {} }, async () => {
          await sessions.closeModel(model);
          return { body: { type: "unload_model", model_id: modelId } };
        });
      }
      return { request_id: id, model_id: modelId };
    },

    async info(owner: string, modelId: string) {
      const { base, method } = sessions.model(owner, modelId);
      const { readModelConfig } = await import("@osmosis/engine");
      const { architecture } = await readModelConfig(base.folder);
      return {
        type: "get_info",
        model_id: modelId,
        model_name: base.name,
        model_data: {
          arch: architecture,
          model_name: base.name,
          tokenizer_id: base.name,
        },
        is_lora: method.type === "lora",
        lora_rank: method.type === "lora" ? method.rank : null,
        lora_alpha: method.type === "lora" ? method.alpha : null,
      };
    },

    forwardBackward(owner: string, request: TinkerForwardBackward): Started {
      const model = sessions.model(owner, request.model_id);
      return submit(model, request, async () => {
        const { data, loss_fn, loss_fn_config } = request.forward_backward_input;
        const { loss, temperature } = lossOf(loss_fn, loss_fn_config);
        const data_B = data.map((datum, index) => datumOf(datum, index, loss));
        const opened = await model.opened;
        const result: ForwardBackwardResult = request.forward_only
          ? await opened.forward(data_B, loss, { temperature })
          : await opened.forwardBackward(data_B, loss, { temperature });
        const body = outputOf(result);
        return { body, protobuf: () => encodeForwardBackwardOutput(body) };
      });
    },

    optimStep(owner: string, request: z.output<typeof TinkerOptimStep>): Started {
      const model = sessions.model(owner, request.model_id);
      const { adam_params: adam } = request;
      return submit(model, request, async () => {
        const { gradNorm, updated } = await (
          await model.opened
        ).optimStep({
          learningRate: adam.learning_rate,
          beta1: adam.beta1,
          beta2: adam.beta2,
          epsilon: adam.eps,
          weightDecay: adam.weight_decay,
          gradClipNorm: adam.grad_clip_norm,
        });
        // JSON has no infinity.
        const norm = Number.isFinite(gradNorm) ? { grad_norm: gradNorm } : {};
        return { body: { type: "optim_step", metrics: { ...norm, updated: Number(updated) } } };
      });
    },

    saveWeights(owner: string, wanted: z.output<typeof TinkerSaveWeights>): Started {
      const model = sessions.model(owner, wanted.model_id);
      return submit(model, wanted, async () => {
        const opened = await model.opened;
        const name = wanted.path ?? `step-${wanted.seq_id}`;
        const meta = metaOf(model, "weights", name);
        const path = await checkpoints.save({ ...meta, overwrite: wanted.overwrite }, async (folders) => {
          await opened.saveWeights(folders.weights);
          await opened.saveState(folders.state);
        });
        return { body: { type: "save_weights", path } };
      });
    },

    saveForSampler(owner: string, wanted: z.output<typeof TinkerSaveForSampler>): Started {
      const model = sessions.model(owner, wanted.model_id);
      const { session, base, method } = model;
      return submit(model, wanted, async () => {
        const opened = await model.opened;
        if (wanted.path != null) {
          const meta = metaOf(model, "sampler_weights", wanted.path);
          const path = await checkpoints.save({ ...meta, overwrite: false }, (folders) =>
            opened.saveWeights(folders.weights),
          );
          return { body: { type: "save_weights_for_sampler", path } };
        }
        const folder = await checkpoints.volatileFolder();
        await opened.saveWeights(folder);
        const id = `${session.id}:sample:${wanted.sampling_session_seq_id ?? randomUUID()}`;
        const sampling: Sampling = { id, session, base, folder, source: sourceOf(base, method, folder) };
        await sessions.addSnapshot(model, sampling);
        return { body: { type: "save_weights_for_sampler", sampling_session_id: id } };
      });
    },

    loadWeights(owner: string, wanted: z.output<typeof TinkerLoadWeights>): Started {
      const body = { type: "load_weights", path: wanted.path };
      const find = async () => {
        const checkpoint = await checkpoints.find(wanted.path, owner);
        if (checkpoint.kind !== "weights") {
          throw new OsmosisError(
            "VALIDATION",
            `${wanted.path} is for sampling; training goes on from weights.`,
          );
        }
        return { ...checkpoint, ...(await sourceOfCheckpoint(checkpoint)) };
      };
      if (wanted.session_id != null && wanted.model_seq_id != null) {
        const session = sessions.get(owner, wanted.session_id);
        return startModel(session, { request: wanted, modelSeqId: wanted.model_seq_id, body }, async () => {
          const { base, method, source, state } = await find();
          const start = { base, method, seed: randomInt(2 ** 31) };
          return wanted.optimizer
            ? { ...start, source: { folder: base.folder }, state }
            : { ...start, source };
        });
      }
      if (wanted.model_id == null || wanted.seq_id == null) {
        throw new OsmosisError(
          "VALIDATION",
          "Loading needs model_id and seq_id, or session_id and model_seq_id.",
        );
      }
      const model = sessions.model(owner, wanted.model_id);
      return submit(model, { ...wanted, seq_id: wanted.seq_id }, async () => {
        const { base, method, source, state } = await find();
        if (base.name !== model.base.name || JSON.stringify(method) !== JSON.stringify(model.method)) {
          throw new OsmosisError(
            "VALIDATION",
            `${wanted.path} belongs to another base model or kind of training.`,
          );
        }
        if (wanted.optimizer) await (await model.opened).loadState(state);
        else {
          const former = await model.opened;
          const fresh = await host.createModel(source, { method, seed: model.seed });
          model.opened = Promise.resolve(fresh);
          await former[Symbol.asyncDispose]();
        }
        return { body: { ...body, model_id: model.id } };
      });
    },

    async createSamplingSession(
      owner: string,
      wanted: z.output<typeof TinkerCreateSamplingSession>,
    ): Promise<string> {
      const session = sessions.get(owner, wanted.session_id);
      const id = `${session.id}:sample:${wanted.sampling_session_seq_id}`;
      sessions.addSampling({ id, session, ...(await samplingSource(owner, wanted)) });
      return id;
    },

    async sample(owner: string, request: TinkerSample): Promise<Started> {
      if (request.sampling_session_id != null) {
        const { id, session, source } = sessions.sampling(owner, request.sampling_session_id);
        const promise = `${id}:${request.seq_id ?? randomUUID()}`;
        promises.start({ id: promise, owner, request }, () =>
          sampleFrom(host, source, request, session.closing.signal),
        );
        return startedSample(promise, request);
      }
      const { source } = await samplingSource(owner, request);
      const promise = `sample:${randomUUID()}`;
      promises.start({ id: promise, owner, request }, () =>
        sampleFrom(host, source, request, stopping.signal),
      );
      return startedSample(promise, request);
    },

    /** Waits for a result for at most half a minute. */
    retrieve(owner: string, id: string): Promise<Outcome> {
      return promises.wait(id, owner, LONG_POLL_MS, stopping.signal);
    },

    async [Symbol.asyncDispose](): Promise<void> {
      clearInterval(timer);
      stopping.abort();
      await host.close();
      await rm(join(config.dataFolder, "tinker", "volatile"), { recursive: true, force: true });
    },
  };
}

/** `train_unembed` has no effect: adapters leave the output head alone, which a session is told when it begins. */
function adapterOf(lora: NonNullable<TinkerCreateModel["lora_config"]>): TrainMethod {
  const { rank, alpha, train_attn: attention, train_mlp: feedForward } = lora;
  const method = { type: "lora", rank, alpha } as const;
  if (attention && feedForward) return method;
  if (attention || feedForward) return { ...method, layers: attention ? "attention" : "feed_forward" };
  throw new OsmosisError("VALIDATION", "An adapter without attention and MLP layers would train nothing.", {
    hint: "Set train_attn or train_mlp; the output head alone cannot be trained.",
  });
}

function metaOf({ id, session, base, method }: LiveModel, kind: Checkpoint["kind"], name: string) {
  return { owner: session.owner, run_id: id, kind, name, base_model: base.name, method };
}

function startedSample(id: string, { num_samples: count }: TinkerSample): Started {
  return {
    request_id: id,
    sample_sequence_ids: Array.from({ length: count }, (_, index) => `${id}:${index}`),
  };
}

import { setTimeout as wait } from "node:timers/promises";
import {
  OsmosisError,
  TinkerCapabilities,
  TinkerClientConfig,
  TinkerSamplingSessionCreated,
  TinkerSessionCreated,
} from "@osmosis/protocol";
import { z } from "zod";
import type { ModelSource, Sampler, TrainMethod, TrainingService } from "../service.ts";
import { measureConvention, type Convention, type Reduction } from "./calibration.ts";
import { readReference, type Reference } from "./reference.ts";
import { AS_IT_IS, createRemoteModel } from "./remote-model.ts";
import { createRemoteSampler, type SamplingTarget } from "./remote-sampler.ts";
import { createRemoteScorer } from "./remote-scorer.ts";
import { createWireClient, type WireClient, type WireOptions } from "./wire-client.ts";

const HEARTBEAT_MS = 10_000;

/** The library's name on the wire; servers keep it with the session. */
const SDK_VERSION = "osmosis-0.1.0";

export type RemoteOptions = Omit<WireOptions, "delay"> &
  Partial<Pick<WireOptions, "delay">> & {
    /** Longest sequence in tokens, for a trainer that does not tell it. */
    readonly contextLength?: number;
    /** Rows of the embedding of the model here; a trainer that samples other tokens has another model. */
    readonly vocabSize?: number;
    /** How the trainer adds up losses; without it that is measured, on a small model of its own. */
    readonly reduction?: Reduction;
    /** The secret with the key, written into references; without it the key is the platform's own. */
    readonly apiKeyName?: string;
    /** Told what is different with this trainer, in sentences for the log of a run. */
    readonly notice?: (text: string) => void;
    /** Ends everything that is under way, with its reason: who is told to stop does not wait for a trainer. */
    readonly signal?: AbortSignal;
  };

/** What everything that lives in one session of a trainer needs. */
export type RemoteSession = {
  readonly id: string;
  readonly wire: WireClient;
  /** Aborted when the service is closed, or whoever it works for has to end. */
  readonly signal: AbortSignal;
  readonly limits: TinkerClientConfig;
  readonly vocabSize: number | undefined;
  /** What a reference to weights says of where they are. */
  readonly origin: Pick<Reference, "url" | "api_key_name">;
  notice(text: string): void;
  nextModel(): number;
  nextSampling(): number;
  /**
   * Longest sequence of a base model, in tokens.
   *
   * @throws OsmosisError `VALIDATION` where `asHere` is set, and its vocabulary has another size than that of the model here.
   */
  contextLength(baseModel: string, options?: { readonly asHere: boolean }): Promise<number>;
  /** A sampling session with the weights of the base model. */
  baseTarget(baseModel: string): Promise<SamplingTarget>;
  /** @throws OsmosisError `VALIDATION` when the trainer cannot divide logits by it. */
  requireTemperature(temperature: number): void;
};

/**
 * A trainer anywhere that speaks the Tinker wire. The `folder` of a source is the name of a base model there, its
 * `adapter` a folder that `saveWeights` or `saveState` has written. Weights stay at the trainer: what is written into
 * such a folder is a reference to them.
 *
 * What fails for a moment is repeated; a repeated request is the same promise, so nothing is executed twice. Calls fail
 * with `NETWORK` when the trainer cannot be reached for minutes, `AUTH_REQUIRED` for a wrong key, `VALIDATION` for what
 * the trainer calls the user's fault, and `PLATFORM_ERROR` for its own.
 *
 * @example
 * await using service = createRemoteService({ url, apiKey, fetch });
 * await using model = await service.createModel({ folder: "osmosis/tiny-agent" }, { method, seed: 0 });
 */
export function createRemoteService(options: RemoteOptions): TrainingService {
  const closing = new AbortController();
  const signal =
    options.signal === undefined ? closing.signal : AbortSignal.any([closing.signal, options.signal]);
  const delay: WireOptions["delay"] =
    options.delay ?? ((milliseconds, stop) => wait(milliseconds, undefined, { signal: stop }));
  const wire = createWireClient({ ...options, delay });
  let opening: Promise<RemoteSession> | undefined;
  let opened: RemoteSession | undefined;
  const conventions = new Map<string, Promise<Convention>>();

  /** The session of this service; it begins with the first model. One that could not be opened is tried again. */
  function session(): Promise<RemoteSession> {
    opening ??= openSession(wire, options, signal).then(
      (session) => (opened = session),
      (error: unknown) => {
        opening = undefined;
        throw error;
      },
    );
    return opening;
  }

  /** Measured once for a base model and a method. */
  function convention(open: RemoteSession, source: ModelSource, method: TrainMethod): Promise<Convention> {
    const { reduction } = options;
    if (reduction !== undefined) return Promise.resolve({ reduction, average: "step", clips: undefined });
    const key = JSON.stringify([source.folder, method]);
    const found = conventions.get(key) ?? measure(open, source, method);
    conventions.set(key, found);
    found.catch(() => conventions.delete(key));
    return found;
  }

  return {
    async openSampler({ folder, adapter }): Promise<Sampler> {
      const open = await session();
      const contextLength = await open.contextLength(folder, { asHere: true });
      const target =
        adapter === undefined
          ? await open.baseTarget(folder)
          : await targetOf(open, { model_path: (await readReference(adapter)).path });
      return createRemoteSampler(open, { contextLength, target: () => target });
    },

    async openScorer({ folder, adapter }) {
      const open = await session();
      const contextLength = await open.contextLength(folder);
      const model =
        adapter === undefined ? { base_model: folder } : { model_path: (await readReference(adapter)).path };
      return createRemoteScorer(open, { contextLength, model });
    },

    async createModel(source, settings) {
      const open = await session();
      await open.contextLength(source.folder, { asHere: true });
      const found = await convention(open, source, settings.method);
      return await createRemoteModel(open, source, settings, found);
    },

    async [Symbol.asyncDispose]() {
      // Politeness: without it the trainer finds out by itself.
      await opened?.wire
        .post(`/sessions/${opened.id}/finish`, {}, z.unknown(), AbortSignal.timeout(2000))
        .catch(() => {});
      closing.abort(new OsmosisError("INTERNAL", "The training service is closed."));
    },
  };
}

async function measure(
  open: RemoteSession,
  { folder }: ModelSource,
  method: TrainMethod,
): Promise<Convention> {
  await using scratch = await createRemoteModel(open, { folder }, { method, seed: 0 }, AS_IT_IS);
  const found = await measureConvention(scratch);
  if (found === undefined) {
    open.notice(
      "The trainer tells no gradient norm, so how it adds up losses could not be measured: it is taken for a plain sum. " +
        "If it averages, say so in [advanced].trainer_reduction.",
    );
    return AS_IT_IS;
  }
  if (found.reduction !== "sum") {
    open.notice(
      `The trainer averages losses (${found.reduction}); what is sent to it is scaled, so that the gradient is the ` +
        "configured one.",
    );
  }
  if (found.clips === false)
    open.notice("The trainer does not clip gradients: grad_clip_norm has no effect.");
  return found;
}

async function targetOf(
  session: RemoteSession,
  weights: { readonly base_model: string } | { readonly model_path: string },
): Promise<SamplingTarget> {
  const { id: session_id, wire, signal } = session;
  const body = { session_id, sampling_session_seq_id: session.nextSampling(), ...weights };
  const created = await wire.post("/create_sampling_session", body, TinkerSamplingSessionCreated, signal);
  return { samplingSession: created.sampling_session_id, version: 0 };
}

async function openSession(
  wire: WireClient,
  options: RemoteOptions,
  signal: AbortSignal,
): Promise<RemoteSession> {
  const limits = await wire
    .post("/client/config", { sdk_version: SDK_VERSION }, TinkerClientConfig, signal)
    .catch((error: unknown) => {
      // Older servers have no such route.
      if (isNotFound(error)) return TinkerClientConfig.parse({});
      throw error;
    });
  const { session_id: id } = await wire.post(
    "/create_session",
    { tags: [], user_metadata: null, sdk_version: SDK_VERSION },
    TinkerSessionCreated,
    signal,
  );
  void keepAlive(wire, id, signal);
  let models = 0;
  let samplings = 0;
  const { url, apiKeyName, contextLength: known, vocabSize, notice } = options;
  const session: RemoteSession = {
    id,
    wire,
    signal,
    limits,
    vocabSize,
    origin: { url, ...(apiKeyName !== undefined && { api_key_name: apiKeyName }) },
    notice: (text) => notice?.(text),
    nextModel: () => models++,
    nextSampling: () => samplings++,
    async contextLength(baseModel, { asHere } = { asHere: false }) {
      const told = await wire
        .get("/get_server_capabilities", TinkerCapabilities, signal)
        .catch((error: unknown) => {
          if (isNotFound(error))
            return TinkerCapabilities.parse({ supported_models: [{ model_name: baseModel }] });
          throw error;
        });
      const found = told.supported_models.find(({ model_name }) => model_name === baseModel);
      const names = told.supported_models.map(({ model_name }) => model_name).join(", ");
      if (found === undefined) {
        throw new OsmosisError("NOT_FOUND", `The trainer has no base model ${baseModel}.`, {
          hint: `It has ${names || "none"}. A name that differs from the platform's goes into [advanced].trainer_model.`,
        });
      }
      const size = found.vocab_size ?? vocabSize;
      if (asHere && vocabSize !== undefined && size !== vocabSize) {
        throw new OsmosisError(
          "VALIDATION",
          `The trainer's ${baseModel} knows ${size} tokens, the model here ${vocabSize}: they are not the same model.`,
          {
            hint: "Name the same model to both: [experiment].model_path here, [advanced].trainer_model there.",
          },
        );
      }
      const length = Math.min(found.max_context_length ?? Infinity, known ?? Infinity);
      if (Number.isFinite(length)) return length;
      throw new OsmosisError("VALIDATION", `The trainer does not tell the context length of ${baseModel}.`);
    },
    baseTarget: (base_model) => targetOf(session, { base_model }),
    requireTemperature(temperature) {
      if (temperature === 1 || limits.forward_temperature) return;
      throw new OsmosisError(
        "VALIDATION",
        `The trainer computes log probabilities at temperature 1 only, not at ${temperature}.`,
        { hint: "Set [sampling].rollout_temperature = 1, or use the embedded trainer." },
      );
    },
  };
  return session;
}

function isNotFound(error: unknown): boolean {
  return error instanceof OsmosisError && error.code === "NOT_FOUND";
}

/** One that does not arrive is made up for by the next. */
async function keepAlive(wire: WireClient, session_id: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    // A client that only waits for its next heartbeat may end.
    await wait(HEARTBEAT_MS, undefined, { signal, ref: false }).catch(() => {});
    if (signal.aborted) return;
    await wire.post("/session_heartbeat", { session_id }, z.unknown(), signal).catch(() => {});
  }
}

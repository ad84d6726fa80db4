import { setTimeout as wait } from "node:timers/promises";
import {
  OsmosisError,
  TinkerCapabilities,
  TinkerClientConfig,
  TinkerSamplingSessionCreated,
  TinkerSessionCreated,
} from "@osmosis/protocol";
import { z } from "zod";
import type { Sampler, TrainingService } from "../service.ts";
import { readReference } from "./reference.ts";
import { createRemoteModel } from "./remote-model.ts";
import { createRemoteSampler } from "./remote-sampler.ts";
import { createWireClient, type WireClient, type WireOptions } from "./wire-client.ts";

const HEARTBEAT_MS = 10_000;

/** The library's name on the wire; servers keep it with the session. */
const SDK_VERSION = "osmosis-0.1.0";

/** What everything that lives in one session of a trainer needs. */
export type RemoteSession = {
  readonly id: string;
  readonly wire: WireClient;
  /** Aborted when the service is closed. */
  readonly signal: AbortSignal;
  readonly limits: TinkerClientConfig;
  nextModel(): number;
  nextSampling(): number;
  /** Longest sequence of a base model, in tokens. */
  contextLength(baseModel: string): Promise<number>;
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
export function createRemoteService(
  options: Omit<WireOptions, "delay"> & Partial<Pick<WireOptions, "delay">>,
): TrainingService {
  const closing = new AbortController();
  const { signal } = closing;
  const delay: WireOptions["delay"] =
    options.delay ?? ((milliseconds, stop) => wait(milliseconds, undefined, { signal: stop }));
  const wire = createWireClient({ ...options, delay });
  let opened: Promise<RemoteSession> | undefined;

  /** The session of this service; it begins with the first model. One that could not be opened is tried again. */
  function session(): Promise<RemoteSession> {
    opened ??= openSession(wire, signal).catch((error: unknown) => {
      opened = undefined;
      throw error;
    });
    return opened;
  }

  return {
    async openSampler({ folder, adapter }): Promise<Sampler> {
      const open = await session();
      const model_path = adapter === undefined ? undefined : (await readReference(adapter)).path;
      const created = await open.wire.post(
        "/create_sampling_session",
        {
          session_id: open.id,
          sampling_session_seq_id: open.nextSampling(),
          base_model: folder,
          ...(model_path !== undefined && { model_path }),
        },
        TinkerSamplingSessionCreated,
        signal,
      );
      const target = { samplingSession: created.sampling_session_id, version: 0 };
      return createRemoteSampler(open, {
        contextLength: await open.contextLength(folder),
        target: () => target,
      });
    },

    openScorer: async () => {
      throw new OsmosisError(
        "VALIDATION",
        "A remote trainer cannot tell the log probabilities of a reference or a teacher.",
        { hint: "Set kl_coef to 0 and leave teacher_model out, or use the embedded trainer." },
      );
    },

    createModel: async (source, settings) => createRemoteModel(await session(), source, settings),

    async [Symbol.asyncDispose]() {
      const open = await opened?.catch(() => undefined);
      // Politeness: without it the trainer finds out by itself.
      await open?.wire
        .post(`/sessions/${open.id}/finish`, {}, z.unknown(), AbortSignal.timeout(2000))
        .catch(() => {});
      closing.abort(new OsmosisError("INTERNAL", "The training service is closed."));
    },
  };
}

async function openSession(wire: WireClient, signal: AbortSignal): Promise<RemoteSession> {
  const limits = await wire
    .post("/client/config", { sdk_version: SDK_VERSION }, TinkerClientConfig, signal)
    .catch((error: unknown) => {
      // Older servers have no such route.
      if (error instanceof OsmosisError && error.code === "NOT_FOUND") return TinkerClientConfig.parse({});
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
  return {
    id,
    wire,
    signal,
    limits,
    nextModel: () => models++,
    nextSampling: () => samplings++,
    async contextLength(baseModel) {
      const { supported_models: known } = await wire.get(
        "/get_server_capabilities",
        TinkerCapabilities,
        signal,
      );
      const found = known.find(({ model_name }) => model_name === baseModel);
      if (found?.max_context_length != null) return found.max_context_length;
      throw new OsmosisError("NOT_FOUND", `The trainer has no base model ${baseModel}.`, {
        hint: `It has ${known.map(({ model_name }) => model_name).join(", ") || "none"}.`,
      });
    },
  };
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

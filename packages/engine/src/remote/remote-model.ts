import { randomUUID } from "node:crypto";
import {
  encodeForwardBackward,
  OsmosisError,
  TinkerLoaded,
  TinkerModelCreated,
  TinkerOptimStepOutput,
  TinkerSamplingSessionCreated,
  TinkerSaved,
  type TinkerForwardBackward,
} from "@osmosis/protocol";
import type { ForwardOptions, ModelSource, TrainMethod, TrainableModel } from "../service.ts";
import { readReference, writeReference } from "./reference.ts";
import { createRemoteSampler, type SamplingTarget } from "./remote-sampler.ts";
import type { RemoteSession } from "./service.ts";
import type { Pending, WireAnswer, WireBody } from "./wire-client.ts";
import { chunksOf, forwardResult, readAnswer, wireDatum, wireLoss } from "./wire-data.ts";

/** What servers scale adapters with when the wire does not say. */
const WIRE_ALPHA = 32;

/** A model at a trainer: `submit` numbers its requests and sends them one after the other. */
type Handle = {
  readonly id: string;
  submit(path: string, body: (seqId: number) => WireBody): Promise<Pending>;
};

/** A model under training at a remote trainer; see `createRemoteService`. */
export async function createRemoteModel(
  session: RemoteSession,
  source: ModelSource,
  options: { readonly method: TrainMethod; readonly seed: number },
): Promise<TrainableModel> {
  const contextLength = await session.contextLength(source.folder);
  let model = await openHandle(session, source.folder, options);
  /** How many updates the weights have seen. */
  let version = 0;
  let target: Promise<SamplingTarget> | undefined;

  const call = async (path: string, body: object): Promise<WireAnswer> => {
    const { id } = model;
    const pending = await model.submit(path, (seq_id) => ({ json: { model_id: id, seq_id, ...body } }));
    return await pending.result();
  };

  async function load(path: string, optimizer: boolean): Promise<void> {
    readAnswer(await call("/load_weights", { path, optimizer }), TinkerLoaded);
  }

  /** Hands the weights as they are now to a new sampling session. */
  async function snapshot(): Promise<SamplingTarget> {
    const of = version;
    const answer = await call("/save_weights_for_sampler", {
      sampling_session_seq_id: session.nextSampling(),
    });
    const { sampling_session_id: samplingSession } = readAnswer(answer, TinkerSamplingSessionCreated);
    return { samplingSession, version: of };
  }

  const evaluate =
    (gradient: boolean): TrainableModel["forward"] =>
    async (data_B, loss, { temperature = 1 }: ForwardOptions = {}) => {
      if (temperature !== 1) {
        throw new OsmosisError(
          "VALIDATION",
          `A remote trainer computes log probabilities at temperature 1 only.`,
          {
            hint: "Sample at temperature 1, or use the embedded trainer.",
          },
        );
      }
      const chunks = chunksOf(data_B, session.limits);
      const { id } = model;
      // All are on their way before the first result is waited for; their order is the order of the calls.
      const sent = chunks.map((chunk) => {
        const forward_backward_input = {
          data: chunk.map((datum) => wireDatum(datum, loss)),
          ...wireLoss(loss),
        };
        return model.submit("/forward_backward", (seq_id) =>
          bodyOf({ model_id: id, seq_id, forward_backward_input }, gradient),
        );
      });
      const answers = await Promise.all(sent.map(async (pending) => (await pending).result()));
      return forwardResult(chunks, answers, loss);
    };

  /** The weights at the trainer get a name, the folder says which. */
  const save = async (route: string, folder: string): Promise<void> => {
    const of = version;
    const { path } = readAnswer(await call(route, { path: `osmosis-${randomUUID()}` }), TinkerSaved);
    if (path == null) throw new OsmosisError("PLATFORM_ERROR", "The trainer saved weights without a path.");
    await writeReference(folder, { path, version: of });
  };

  if (source.adapter !== undefined) {
    await load((await readReference(source.adapter)).path, false);
    target = snapshot();
    await target;
  }

  const sampler = createRemoteSampler(session, {
    contextLength,
    target: () => (target ??= baseTarget(session, source.folder)),
  });
  return {
    ...sampler,
    forwardBackward: evaluate(true),
    forward: evaluate(false),

    async optimStep(params) {
      const answer = await call("/optim_step", {
        adam_params: {
          learning_rate: params.learningRate,
          beta1: params.beta1,
          beta2: params.beta2,
          eps: params.epsilon,
          weight_decay: params.weightDecay,
          grad_clip_norm: params.gradClipNorm,
        },
      });
      const metrics = readAnswer(answer, TinkerOptimStepOutput).metrics ?? {};
      const updated = metrics["updated"] !== 0;
      if (updated) version += 1;
      return { gradNorm: metrics["grad_norm"] ?? Number.NaN, updated };
    },

    async syncSampler() {
      const next = await snapshot();
      target = Promise.resolve(next);
      return next.version;
    },

    saveWeights: (folder) => save("/save_weights_for_sampler", folder),
    saveState: (folder) => save("/save_weights", folder),

    async loadState(folder) {
      const reference = await readReference(folder);
      // Weights may only be loaded by the first request of a model.
      const former = model;
      model = await openHandle(session, source.folder, options);
      await load(reference.path, true);
      version = reference.version;
      target = Promise.resolve(await snapshot());
      await unload(session, former);
    },

    [Symbol.asyncDispose]: () => unload(session, model),
  };
}

async function openHandle(
  session: RemoteSession,
  baseModel: string,
  { method, seed }: { readonly method: TrainMethod; readonly seed: number },
): Promise<Handle> {
  const { wire, signal } = session;
  const lora = method.type === "lora" && {
    lora_config: {
      rank: method.rank,
      ...(method.alpha !== WIRE_ALPHA && { alpha: method.alpha }),
      seed,
      train_unembed: true,
      train_mlp: true,
      train_attn: true,
    },
  };
  const json = {
    session_id: session.id,
    model_seq_id: session.nextModel(),
    base_model: baseModel,
    ...lora,
  };
  const created = await (await wire.start("/create_model", { json }, signal)).result();
  const { model_id: id } = readAnswer(created, TinkerModelCreated);
  let lastSeqId = 0;
  let last: Promise<unknown> = Promise.resolve();
  let broken: unknown;
  return {
    id,
    submit(path, body) {
      const seqId = ++lastSeqId;
      const accepted = last.then(() => {
        if (broken === undefined) return wire.start(path, body(seqId), signal);
        throw new OsmosisError(
          "PLATFORM_ERROR",
          `The model ${id} cannot go on after a request that was not accepted.`,
          {
            cause: broken,
          },
        );
      });
      // A number that the trainer never got would be waited for by all later ones.
      last = accepted.catch((error: unknown) => {
        broken ??= error;
      });
      return accepted;
    },
  };
}

/** In JSON a pass without a gradient is another route, in protocol buffers a field. */
function bodyOf(request: Omit<TinkerForwardBackward, "forward_only">, gradient: boolean): WireBody {
  const protobuf = () => encodeForwardBackward({ ...request, forward_only: !gradient });
  if (gradient) return { json: request, protobuf };
  const { forward_backward_input: forward_input, ...rest } = request;
  return { json: { ...rest, forward_input }, jsonPath: "/forward", protobuf };
}

/** Before the first update the sampler has the weights of the base model. */
async function baseTarget(session: RemoteSession, baseModel: string): Promise<SamplingTarget> {
  const body = {
    session_id: session.id,
    sampling_session_seq_id: session.nextSampling(),
    base_model: baseModel,
  };
  const created = await session.wire.post(
    "/create_sampling_session",
    body,
    TinkerSamplingSessionCreated,
    session.signal,
  );
  return { samplingSession: created.sampling_session_id, version: 0 };
}

/** Best effort: the trainer closes it with the session anyway. */
async function unload(session: RemoteSession, { id }: Handle): Promise<void> {
  if (session.signal.aborted) return;
  const started = session.wire.start("/unload_model", { json: { model_id: id } }, session.signal);
  await started.then((pending) => pending.result()).catch(() => {});
}

import { randomUUID } from "node:crypto";
import {
  encodeForwardBackward,
  OsmosisError,
  TinkerLoaded,
  TinkerOptimStepOutput,
  TinkerSamplingSessionCreated,
  TinkerSaved,
  type TinkerForwardBackward,
} from "@osmosis/protocol";
import type { Datum, ForwardOptions, ModelSource, TrainMethod, TrainableModel } from "../service.ts";
import { downloadAdapter } from "./archive.ts";
import { scaleOf, type Convention } from "./calibration.ts";
import { openHandle, unload } from "./model-handle.ts";
import { readReference, writeReference, type Reference } from "./reference.ts";
import { createRemoteSampler, type SamplingTarget } from "./remote-sampler.ts";
import type { RemoteSession } from "./service.ts";
import type { WireAnswer, WireBody } from "./wire-client.ts";
import { chunksOf, forwardResult, readAnswer, rubbish, wireDatum, wireLoss } from "./wire-data.ts";

/** States to keep at the trainer: the newest, and the one before it, which a run goes on from until the newest is committed. */
const STATES_KEPT = 2;

/** What sends everything as it is. */
export const AS_IT_IS: Convention = { reduction: "sum", average: "step", clips: undefined };

/** A model under training at a remote trainer; see `createRemoteService`. */
export async function createRemoteModel(
  session: RemoteSession,
  source: ModelSource,
  options: { readonly method: TrainMethod; readonly seed: number },
  { reduction, average }: Convention,
): Promise<TrainableModel> {
  const contextLength = await session.contextLength(source.folder);
  let model = await openHandle(session, source.folder, options);
  /** How many updates the weights have seen. */
  let version = 0;
  let target: Promise<SamplingTarget> | undefined;
  /** Calls since the last step whose gradients the trainer averages with those of later ones. */
  let averaged = 0;
  const states: string[] = [];

  const call = async (path: string, body: () => object): Promise<WireAnswer> => {
    const { id } = model;
    const pending = await model.submit(path, (seq_id) => ({ json: { model_id: id, seq_id, ...body() } }));
    return await pending.result();
  };

  async function load(path: string, optimizer: boolean): Promise<void> {
    readAnswer(await call("/load_weights", () => ({ path, optimizer })), TinkerLoaded);
  }

  /** Hands the weights as they are now to a new sampling session. */
  async function snapshot(): Promise<SamplingTarget> {
    const of = version;
    const answer = await call("/save_weights_for_sampler", () => ({
      sampling_session_seq_id: session.nextSampling(),
    }));
    const { sampling_session_id: samplingSession } = readAnswer(answer, TinkerSamplingSessionCreated);
    return { samplingSession, version: of };
  }

  const evaluate =
    (gradient: boolean): TrainableModel["forward"] =>
    async (data_B, loss, { temperature = 1 }: ForwardOptions = {}) => {
      session.requireTemperature(temperature);
      const wire = { loss, temperature, reduction };
      const chunks = chunksOf(data_B, session.limits);
      if (gradient && reduction !== "sum" && average === "step" && averaged++ > 0) {
        throw new OsmosisError(
          "VALIDATION",
          "This trainer averages over all calls of forwardBackward before a step, so there can be one only.",
          { hint: "Send all sequences of a step at once." },
        );
      }
      const { id } = model;
      const scale = (datum: Datum, chunk: readonly Datum[]): number =>
        scaleOf(reduction, datum, average === "step" ? data_B : chunk);
      // All are on their way before the first result is waited for; their order is the order of the calls.
      const sent = chunks.map((chunk) => {
        const forward_backward_input = {
          data: chunk.map((datum) => wireDatum(datum, wire, scale(datum, chunk))),
          ...wireLoss(wire),
        };
        return model.submit("/forward_backward", (seq_id) =>
          bodyOf({ model_id: id, seq_id, forward_backward_input }, gradient),
        );
      });
      const answers = await Promise.all(sent.map(async (pending) => (await pending).result()));
      return forwardResult(chunks, answers, loss);
    };

  /** The weights at the trainer get a name. */
  const save = async (route: string): Promise<string> => {
    const answer = await call(route, () => ({ path: `osmosis-${randomUUID()}` }));
    const { path } = readAnswer(answer, TinkerSaved);
    if (path == null) throw rubbish("saved weights without a path");
    return path;
  };

  const refer = (
    folder: string,
    of: number,
    paths: Pick<Reference, "path" | "training_path">,
  ): Promise<void> =>
    writeReference(folder, { ...paths, version: of, base_model: source.folder, ...session.origin });

  if (source.adapter !== undefined) {
    const reference = await readReference(source.adapter);
    await load(reference.training_path ?? reference.path, false);
    target = snapshot();
    await target;
  }

  const sampler = createRemoteSampler(session, {
    contextLength,
    target: () => (target ??= session.baseTarget(source.folder)),
  });
  return {
    ...sampler,
    forwardBackward: evaluate(true),
    forward: evaluate(false),

    async optimStep(params) {
      averaged = 0;
      const adam_params = {
        learning_rate: params.learningRate,
        beta1: params.beta1,
        beta2: params.beta2,
        eps: params.epsilon,
        weight_decay: params.weightDecay,
        grad_clip_norm: params.gradClipNorm,
      };
      const answer = await call("/optim_step", () => ({ adam_params }));
      const metrics = readAnswer(answer, TinkerOptimStepOutput).metrics ?? {};
      const updated = metrics["updated"] !== 0;
      if (updated) version += 1;
      return { gradNorm: gradNormOf(metrics), updated };
    },

    async syncSampler() {
      // The base model's weights need no copy; the trainer has them.
      if (version === 0 && target === undefined) return 0;
      const next = await snapshot();
      target = Promise.resolve(next);
      return next.version;
    },

    async saveWeights(folder) {
      const of = version;
      const path = await save("/save_weights_for_sampler");
      // What is saved for sampling cannot be trained further.
      await refer(folder, of, { path, training_path: await save("/save_weights") });
      if (options.method.type !== "lora") return;
      const why = await downloadAdapter(session.wire, path, folder, session.signal);
      if (why !== undefined)
        session.notice(`${why}: the checkpoint is a reference to them, and lives there.`);
    },

    async saveState(folder) {
      const of = version;
      const path = await save("/save_weights");
      await refer(folder, of, { path });
      states.push(path);
      for (const old of states.splice(0, states.length - STATES_KEPT)) await discard(session, old);
    },

    async loadState(folder) {
      const reference = await readReference(folder);
      // Weights may only be loaded by the first request of a model.
      const former = model.isFresh() ? undefined : model;
      if (former !== undefined) model = await openHandle(session, source.folder, options);
      await load(reference.path, true);
      version = reference.version;
      averaged = 0;
      target = Promise.resolve(await snapshot());
      states.splice(0, states.length, reference.path);
      if (former !== undefined) await unload(session, former);
    },

    [Symbol.asyncDispose]: () => unload(session, model),
  };
}

/** Servers put their own name before it, and how it is merged behind it. NaN where there is none. */
function gradNormOf(metrics: Readonly<Record<string, number>>): number {
  const found = Object.entries(metrics).find(([name]) => /(^|[./])grad_norm(:|$)/.test(name));
  return found?.[1] ?? Number.NaN;
}

/** In JSON a pass without a gradient is another route, in protocol buffers a field. */
function bodyOf(request: Omit<TinkerForwardBackward, "forward_only">, gradient: boolean): WireBody {
  const protobuf = () => encodeForwardBackward({ ...request, forward_only: !gradient });
  if (gradient) return { json: request, protobuf };
  const { forward_backward_input: forward_input, ...rest } = request;
  return { json: { ...rest, forward_input }, jsonPath: "/forward", protobuf };
}

/** Best effort: a state that is left over takes room at the trainer, nothing else. */
async function discard(session: RemoteSession, path: string): Promise<void> {
  const parts = /^tinker:\/\/([^/]+)\/(weights)\/([^/]+)$/.exec(path);
  if (parts === null) return;
  const [run = "", kind = "", name = ""] = parts.slice(1).map(encodeURIComponent);
  await session.wire
    .delete(`/training_runs/${run}/checkpoints/${kind}/${name}`, session.signal)
    .catch(() => {});
}

import { Worker } from "node:worker_threads";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import { refuseTelemetry } from "../graph/io.ts";
import { createCallFlags, endNativeCalls, endNativeCallsBlocking } from "../graph/native-calls.ts";
import type { ForwardOptions, Sampler, Scorer, TrainableModel, TrainingService } from "../service.ts";
import {
  fromFailure,
  packData,
  type Answers,
  type Command,
  type FromWorker,
  type Opened,
  type ToWorker,
} from "./messages.ts";
import type { WorkerData } from "./worker-data.ts";

type Call = <Type extends Command["type"]>(
  command: Extract<Command, { type: Type }> | (Command & { type: Type }),
  options?: { readonly signal?: AbortSignal; readonly transfer?: readonly ArrayBuffer[] },
) => Promise<Answers[Type]>;

/**
 * Trains and samples on this machine's CPU, in a thread of its own: the caller's event loop stays free. `threads` is
 * how many cores one matrix product may use; results do not depend on it. The thread keeps the process alive only
 * while a call is under way.
 *
 * Calls fail with `ENGINE_MISSING` when onnxruntime is not installed.
 *
 * @example
 * await using service = createEmbeddedService({ threads: 2 });
 * await using model = await service.createModel({ folder }, { method: { type: "full" }, seed: 0 });
 * await model.forwardBackward(data, { type: "cross_entropy" });
 * await model.optimStep(adam);
 */
export function createEmbeddedService({ threads }: { readonly threads: number }): TrainingService {
  const thread = startThread(threads);
  return {
    openSampler: async (source) => sampler(thread.call, await thread.call({ type: "openSampler", source })),
    openScorer: async (source) => scorer(thread.call, await thread.call({ type: "openScorer", source })),
    createModel: async (source, options) =>
      trainable(thread.call, await thread.call({ type: "createModel", source, ...options })),
    [Symbol.asyncDispose]: thread.stop,
  };
}

function sampler(call: Call, { model, contextLength }: Opened): Sampler {
  return {
    contextLength,
    sample: ({ signal, ...request }) =>
      call({ type: "sample", model, request }, signal === undefined ? {} : { signal }),
    endConversation(conversation) {
      // Nothing is left to forget when the thread has stopped.
      call({ type: "endConversation", model, conversation }).catch(() => {});
    },
    [Symbol.asyncDispose]: async () => {
      await call({ type: "close", model }).catch(() => {});
    },
  };
}

function scorer(call: Call, { model, contextLength }: Opened): Scorer {
  return {
    contextLength,
    async logprobs(sequences_B, { temperature = 1 }: ForwardOptions = {}) {
      const data = packData(
        sequences_B.map(({ tokens_T, weights_T }) => {
          const zeros = tokens_T.map(() => 0);
          return {
            tokens_T,
            weights_T: weights_T ?? tokens_T.map(() => 1),
            advantages_T: zeros,
            samplerLogprobs_T: zeros,
          };
        }),
      );
      const { logprobs_B_T } = await call(
        { type: "score", model, data, temperature },
        { transfer: [data.values.buffer as ArrayBuffer] }, // packData allocates it unshared
      );
      return logprobs_B_T;
    },
    [Symbol.asyncDispose]: async () => {
      await call({ type: "close", model }).catch(() => {});
    },
  };
}

function trainable(call: Call, opened: Opened): TrainableModel {
  const { model } = opened;
  const evaluate =
    (gradient: boolean): TrainableModel["forward"] =>
    (data_B, loss, { temperature = 1 }: ForwardOptions = {}) => {
      const data = packData(data_B);
      return call(
        { type: "evaluate", model, data, loss, temperature, gradient },
        { transfer: [data.values.buffer as ArrayBuffer] }, // packData allocates it unshared
      );
    };
  return {
    ...sampler(call, opened),
    forwardBackward: async (...parameters) => evaluate(true)(...parameters),
    forward: async (...parameters) => evaluate(false)(...parameters),
    optimStep: (params) => call({ type: "optimStep", model, params }),
    syncSampler: () => call({ type: "syncSampler", model }),
    saveWeights: async (folder) => void (await call({ type: "saveWeights", model, folder })),
    saveState: async (folder) => void (await call({ type: "saveState", model, folder })),
    loadState: async (folder) => void (await call({ type: "loadState", model, folder })),
  };
}

type Pending = { readonly resolve: (answer: never) => void; readonly reject: (error: unknown) => void };

function startThread(threads: number): { readonly call: Call; readonly stop: () => Promise<void> } {
  const entry = new URL(import.meta.url.endsWith(".ts") ? "./worker.ts" : "./worker.js", import.meta.url);
  const callFlags = createCallFlags();
  refuseTelemetry();
  const worker = new Worker(entry, { workerData: { threads, callFlags } satisfies WorkerData, execArgv: [] });
  const pending = new Map<number, Pending>();
  let lastId = 0;
  let stopped: Error | undefined;

  const onProcessExit = (): void => endNativeCallsBlocking(callFlags);
  process.once("exit", onProcessExit);
  worker.unref();
  worker.on("message", (message: FromWorker) => {
    const call = pending.get(message.id);
    pending.delete(message.id);
    if (pending.size === 0) worker.unref();
    if (call === undefined) return;
    if ("failure" in message) call.reject(fromFailure(message.failure));
    // The thread answers every command with its own answer.
    else call.resolve(message.answer as never);
  });
  worker.on("error", (error) =>
    end(new OsmosisError("INTERNAL", `The engine's thread failed: ${errorMessage(error)}`, { cause: error })),
  );
  worker.on("exit", () => end(new OsmosisError("INTERNAL", "The engine's thread has stopped.")));

  function end(reason: Error): void {
    stopped ??= reason;
    for (const { reject } of pending.values()) reject(stopped);
    pending.clear();
  }

  function post(message: ToWorker, moved: readonly ArrayBuffer[] = []): void {
    worker.postMessage(message, moved);
  }

  const call: Call = (command, { signal, transfer = [] } = {}) => {
    if (stopped !== undefined) return Promise.reject(stopped);
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = ++lastId;
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        post({ id, abort: true });
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      const settle = () => signal?.removeEventListener("abort", onAbort);
      pending.set(id, {
        resolve: (answer) => {
          settle();
          resolve(answer);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      });
      worker.ref();
      post({ id, command }, transfer);
    });
  };

  return {
    call,
    stop: async () => {
      end(new OsmosisError("INTERNAL", "The training service is closed."));
      await endNativeCalls(callFlags);
      await worker.terminate();
      process.off("exit", onProcessExit);
    },
  };
}

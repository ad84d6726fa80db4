/**
 * Samples in several threads, each with a decoder and a cache of its own over one copy of the weights. A decoder has one
 * thread, or its bits would depend on the batch; several decoders are how the other cores are used. A request's result
 * does not depend on the lane that it takes.
 */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import type { CallFlags } from "../graph/native-calls.ts";
import { layOutWeights, shareWeights, type DecoderWeights } from "../sampler/decoder-weights.ts";
import { createLaneChoice } from "../sampler/lane-choice.ts";
import { openBatchedSampler, type SamplingOptions } from "../sampler/sampling-engine.ts";
import type { SampleRequest, SampleResult } from "../service.ts";
import { fromFailure } from "./messages.ts";
import type { FromSamplingLane, ToSamplingLane } from "./sampling-lane.ts";
import type { OpenSamplingEngine } from "./sampling-engine.ts";
import type { WorkerData } from "./worker-data.ts";

export type LaneOptions = Omit<SamplingOptions, "weights"> & { readonly weights: DecoderWeights };

type Lane = {
  sample(request: SampleRequest): Promise<SampleResult>;
  endConversation(conversation: string): void;
  setWeights(weights: DecoderWeights, version: number): void;
  close(): Promise<void>;
};

/** What all lanes together may take. */
const MAX_ROWS = 128;
const MAX_CACHE_BYTES = 2 ** 30;
const MAX_STORED_BYTES = 2 ** 28;

/** Opens samplers of `threads` lanes: this thread, and helper threads. */
export function openSamplingLanes(environment: {
  readonly threads: number;
  readonly callFlags: CallFlags;
}): OpenSamplingEngine {
  const { threads, callFlags } = environment;
  return async ({ config, weights, version }) => {
    const layOut = (given: typeof weights): DecoderWeights => {
      const laidOut = layOutWeights(config, given);
      return threads === 1 ? laidOut : shareWeights(laidOut);
    };
    const options: LaneOptions = {
      config,
      version,
      weights: layOut(weights),
      maxRows: Math.ceil(MAX_ROWS / threads),
      maxCacheBytes: MAX_CACHE_BYTES / threads,
      maxStoredBytes: MAX_STORED_BYTES / threads,
    };
    // Helpers first: of equally loaded lanes the first is taken, and this thread has other work, too.
    const helpers = Array.from({ length: threads - 1 }, () => startLane(options, callFlags));
    const lanes: readonly Lane[] = [...helpers, await openBatchedSampler(options)];
    const choice = createLaneChoice(lanes.length);
    return {
      async sample(request) {
        const lane = choice.take(request.conversation, request.prompt_T);
        try {
          return await laneAt(lanes, lane).sample(request);
        } finally {
          choice.release(lane);
        }
      },
      endConversation(conversation) {
        for (const lane of lanes) lane.endConversation(conversation);
      },
      setWeights(given, nextVersion) {
        const laidOut = layOut(given);
        for (const lane of lanes) lane.setWeights(laidOut, nextVersion);
      },
      async close() {
        await Promise.all(lanes.map((lane) => lane.close()));
      },
    };
  };
}

function laneAt(lanes: readonly Lane[], index: number): Lane {
  const lane = lanes[index];
  if (lane === undefined) throw new RangeError(`no lane ${index}`);
  return lane;
}

function startLane(options: LaneOptions, callFlags: CallFlags): Lane {
  const isSource = import.meta.url.endsWith(".ts");
  const entry = new URL(isSource ? "./sampling-lane.ts" : "./sampling-lane.js", import.meta.url);
  const data: WorkerData & { readonly options: LaneOptions } = { threads: 1, callFlags, options };
  const worker = new Worker(entry, { workerData: data, execArgv: [] });
  const pending = new Map<
    number,
    { readonly resolve: (result: SampleResult) => void; readonly reject: (error: unknown) => void }
  >();
  let lastId = 0;
  let failed: Error | undefined;
  const fail = (error: Error): void => {
    failed ??= error;
    for (const { reject } of pending.values()) reject(failed);
    pending.clear();
  };
  const post = (message: ToSamplingLane): void => worker.postMessage(message, []);
  worker.on("message", (message: FromSamplingLane) => {
    const call = pending.get(message.id);
    pending.delete(message.id);
    if ("failure" in message) call?.reject(fromFailure(message.failure));
    else call?.resolve(message.result);
  });
  worker.on("error", (error) => fail(error instanceof Error ? error : new Error(String(error))));
  worker.on("exit", () => fail(new Error("a sampling thread of the engine has stopped")));
  return {
    sample: ({ signal, ...request }) =>
      new Promise((resolve, reject) => {
        if (failed !== undefined) return reject(failed);
        if (signal?.aborted) return reject(signal.reason);
        const id = ++lastId;
        const onAbort = (): void => post({ type: "abort", id });
        signal?.addEventListener("abort", onAbort, { once: true });
        const settled = (): void => signal?.removeEventListener("abort", onAbort);
        pending.set(id, {
          resolve: (result) => {
            settled();
            resolve(result);
          },
          reject: (error) => {
            settled();
            reject(signal?.aborted ? signal.reason : error);
          },
        });
        post({ type: "sample", id, request });
      }),
    endConversation: (conversation) => post({ type: "endConversation", conversation }),
    setWeights: (weights, version) => post({ type: "weights", weights, version }),
    async close() {
      post({ type: "close" });
      if (failed === undefined) await once(worker, "exit");
    },
  };
}

/**
 * Samples in several lanes, each a thread with a decoder and a cache of its own over one copy of the weights. A decoder
 * of a small model has one thread, or its bits would depend on the batch; several decoders are how the other cores are
 * used. One of a large model takes all cores for itself: each step reads all weights, whatever its number of rows. A
 * request's result does not depend on the lane that it takes.
 */
import type { CallFlags } from "../graph/native-calls.ts";
import { layOutWeights, shareWeights, type DecoderWeights } from "../sampler/decoder-weights.ts";
import { createLaneChoice } from "../sampler/lane-choice.ts";
import { decoderThreads } from "../sampler/product-layout.ts";
import { openBatchedSampler, type SamplingOptions } from "../sampler/sampling-engine.ts";
import type { SampleRequest, SampleResult } from "../service.ts";
import { startHelper } from "./helper-thread.ts";
import type { ToSamplingLane } from "./sampling-lane.ts";
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
    const perLane = decoderThreads(config, threads);
    const laneCount = Math.floor(threads / perLane);
    const layOut = (given: typeof weights): DecoderWeights => {
      const laidOut = layOutWeights(config, given);
      return laneCount === 1 ? laidOut : shareWeights(laidOut);
    };
    const options: LaneOptions = {
      config,
      version,
      weights: layOut(weights),
      threads: perLane,
      maxRows: Math.ceil(MAX_ROWS / laneCount),
      maxCacheBytes: MAX_CACHE_BYTES / laneCount,
      maxStoredBytes: MAX_STORED_BYTES / laneCount,
    };
    // Helpers first: of equally loaded lanes the first is taken, and this thread has other work, too.
    const helpers = Array.from({ length: laneCount - 1 }, () => startLane(options, callFlags));
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
  const thread = startHelper<ToSamplingLane, SampleResult>(entry, data);
  return {
    sample: ({ signal, ...request }) =>
      thread.call((id) => ({ type: "sample", id, request }), {
        signal,
        withdraw: (id) => ({ type: "abort", id }),
      }),
    endConversation: (conversation) => thread.post({ type: "endConversation", conversation }),
    setWeights: (weights, version) => thread.post({ type: "weights", weights, version }),
    close: () => thread.end({ type: "close" }),
  };
}

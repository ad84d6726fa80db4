/** A helper thread of `openSamplingLanes`: a sampler of its own, over weights that all lanes share. */
import { parentPort, workerData } from "node:worker_threads";
import { z } from "zod";
import { countNativeCalls } from "../graph/native-calls.ts";
import type { DecoderWeights } from "../sampler/decoder-weights.ts";
import { openBatchedSampler } from "../sampler/sampling-engine.ts";
import type { SampleRequest, SampleResult } from "../service.ts";
import type { FromHelper } from "./helper-thread.ts";
import { toFailure } from "./messages.ts";
import type { LaneOptions } from "./sampling-lanes.ts";
import { WorkerData } from "./worker-data.ts";

export type ToSamplingLane =
  | { readonly type: "sample"; readonly id: number; readonly request: Omit<SampleRequest, "signal"> }
  | { readonly type: "abort"; readonly id: number }
  | { readonly type: "endConversation"; readonly conversation: string }
  | { readonly type: "weights"; readonly weights: DecoderWeights; readonly version: number }
  | { readonly type: "close" };

const port = parentPort;
if (port === null) throw new Error("this file is the entry of a worker thread");

const { callFlags, options } = WorkerData.extend({ options: z.custom<LaneOptions>() }).parse(workerData);
countNativeCalls(callFlags);
const sampler = openBatchedSampler(options);
// Whoever samples hears of a failure.
sampler.catch(() => {});
const running = new Map<number, AbortController>();

port.on("message", (message: ToSamplingLane) => void handle(message));

async function handle(message: ToSamplingLane): Promise<void> {
  switch (message.type) {
    case "sample":
      await sample(message.id, message.request);
      break;
    case "abort":
      running.get(message.id)?.abort();
      break;
    case "endConversation":
      (await sampler).endConversation(message.conversation);
      break;
    case "weights":
      (await sampler).setWeights(message.weights, message.version);
      break;
    case "close":
      await (await sampler).close();
      // Without its port the thread has nothing to wait for, and ends.
      port?.close();
  }
}

async function sample(id: number, request: Omit<SampleRequest, "signal">): Promise<void> {
  const abort = new AbortController();
  running.set(id, abort);
  let reply: FromHelper<SampleResult>;
  try {
    reply = { id, result: await (await sampler).sample({ ...request, signal: abort.signal }) };
  } catch (error) {
    reply = { id, failure: toFailure(error) };
  }
  running.delete(id);
  port?.postMessage(reply, []);
}

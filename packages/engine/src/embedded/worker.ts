/**
 * The engine's thread: it owns onnxruntime and the weights. Running a graph blocks the thread, so long work is cut into
 * micro-batches and decoding steps, and messages are read in between.
 */
import { setImmediate } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { countNativeCalls } from "../graph/native-calls.ts";
import { openSamplingLanes } from "./sampling-lanes.ts";
import { WorkerData } from "./worker-data.ts";
import {
  toFailure,
  unpackData,
  type Answers,
  type Command,
  type FromWorker,
  type ToWorker,
} from "./messages.ts";
import {
  openModel,
  openSampler,
  openScorer,
  type OpenModel,
  type OpenSampler,
  type OpenScorer,
} from "./open-models.ts";

const { threads, callFlags } = WorkerData.parse(workerData);
countNativeCalls(callFlags);
const port = parentPort;
if (port === null) throw new Error("this file is the entry of a worker thread");

const openSamplingEngine = openSamplingLanes({ threads, callFlags });
const environment = { threads, callFlags, openSamplingEngine, pause: () => setImmediate() };
type Opened = OpenModel | OpenSampler | OpenScorer;
const models = new Map<number, Opened>();
const running = new Map<number, AbortController>();
let lastModel = 0;

port.on("message", (message: ToWorker) => {
  if ("abort" in message) running.get(message.id)?.abort();
  else void answer(message.id, message.command);
});

async function answer(id: number, command: Command): Promise<void> {
  const abort = new AbortController();
  running.set(id, abort);
  let reply: FromWorker;
  try {
    reply = { id, answer: await execute(command, abort.signal) };
  } catch (error) {
    reply = { id, failure: toFailure(error) };
  }
  running.delete(id);
  port?.postMessage(reply, transferable(reply));
}

async function execute(command: Command, signal: AbortSignal): Promise<Answers[keyof Answers]> {
  switch (command.type) {
    case "openSampler":
      return register(await openSampler(environment, command.source));
    case "openScorer":
      return register(await openScorer(environment, command.source));
    case "createModel":
      return register(await openModel(environment, command.source, command));
    case "sample":
      return findSampler(command.model).sample({ ...command.request, signal });
    case "endConversation":
      if (models.has(command.model)) findSampler(command.model).endConversation(command.conversation);
      return null;
    case "score":
      return findScorer(command.model).score(unpackData(command.data), command);
    case "evaluate":
      return findTrainable(command.model).evaluate(unpackData(command.data), command.loss, command);
    case "optimStep":
      return findTrainable(command.model).optimStep(command.params);
    case "syncSampler":
      return findTrainable(command.model).syncSampler();
    case "saveWeights":
    case "saveState":
    case "loadState":
      await findTrainable(command.model)[command.type](command.folder);
      return null;
    case "close":
      await models.get(command.model)?.close();
      models.delete(command.model);
      return null;
  }
}

function register(opened: Opened) {
  const model = ++lastModel;
  models.set(model, opened);
  return { model, contextLength: opened.config.contextLength };
}

function find(model: number): Opened {
  const opened = models.get(model);
  if (opened === undefined) throw new Error(`model ${model} is closed`);
  return opened;
}

function findSampler(model: number): OpenModel | OpenSampler {
  const opened = find(model);
  if (!("sample" in opened)) throw new Error(`model ${model} was opened for scoring only`);
  return opened;
}

function findScorer(model: number): OpenScorer {
  const opened = find(model);
  if (!("score" in opened)) throw new Error(`model ${model} was not opened for scoring`);
  return opened;
}

function findTrainable(model: number): OpenModel {
  const opened = find(model);
  if (!("optimStep" in opened)) throw new Error(`model ${model} was opened for sampling only`);
  return opened;
}

/** The log probabilities of an evaluation are views of one buffer, which moves instead of being copied. */
function transferable(reply: FromWorker): ArrayBuffer[] {
  const value = "answer" in reply ? reply.answer : null;
  if (value === null || typeof value !== "object" || !("logprobs_B_T" in value)) return [];
  const buffer = value.logprobs_B_T[0]?.buffer;
  return buffer instanceof ArrayBuffer ? [buffer] : [];
}

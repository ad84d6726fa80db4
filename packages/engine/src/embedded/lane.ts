/** A helper thread of `parallelRunner`: runs graphs on its own copy of the parameters, one job after the other. */
import { parentPort, workerData } from "node:worker_threads";
import { countNativeCalls } from "../graph/native-calls.ts";
import { loadRuntime, type TensorData } from "../graph/session.ts";
import type { BuiltGraph } from "../graph/builder.ts";
import { createSessions, type Job, type JobResults } from "../training/batch-runner.ts";
import type { FromHelper } from "./helper-thread.ts";
import { toFailure } from "./messages.ts";
import { WorkerData } from "./worker-data.ts";

export type ToLane =
  | { readonly type: "prepare"; readonly name: string; readonly graph: BuiltGraph }
  | { readonly type: "parameters"; readonly parameters: Readonly<Record<string, TensorData>> }
  | { readonly type: "stop" }
  | { readonly type: "run"; readonly id: number; readonly job: Omit<Job, "cost"> };

/** Jobs are answered in the order in which they came. */
type FromLane = FromHelper<JobResults>;

const port = parentPort;
if (port === null) throw new Error("this file is the entry of a worker thread");

countNativeCalls(WorkerData.parse(workerData).callFlags);
const parameters: Record<string, TensorData> = {};
const ready = loadRuntime({ threads: 1 }).then((runtime) => createSessions(runtime, parameters));
let work: Promise<unknown> = ready.catch(() => {});

port.on("message", (message: ToLane) => {
  work = work.then(() => handle(message));
});

async function handle(message: ToLane): Promise<void> {
  if (message.type === "parameters") Object.assign(parameters, message.parameters);
  else if (message.type === "prepare") await prepare(message);
  // Without its port the thread has nothing to wait for, and ends.
  else if (message.type === "stop") port?.close();
  else await run(message);
}

async function prepare({ name, graph }: ToLane & { type: "prepare" }): Promise<void> {
  // What fails here fails again, and is reported, when the graph is run.
  await ready.then((sessions) => sessions.add(name, graph)).catch(() => {});
}

async function run({ id, job }: ToLane & { type: "run" }): Promise<void> {
  try {
    const result = await (await ready).run(job);
    const buffers = Object.values(result).map(({ buffer }) => buffer as ArrayBuffer); // onnxruntime's own
    port?.postMessage({ id, result } satisfies FromLane, buffers);
  } catch (error) {
    port?.postMessage({ id, failure: toFailure(error) } satisfies FromLane);
  }
}

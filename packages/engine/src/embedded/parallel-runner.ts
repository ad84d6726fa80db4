import type { CallFlags } from "../graph/native-calls.ts";
import type { Runtime } from "../graph/session.ts";
import {
  createSessions,
  type BatchRunner,
  type Feeds,
  type Job,
  type JobResults,
} from "../training/batch-runner.ts";
import { startHelper } from "./helper-thread.ts";
import type { ToLane } from "./lane.ts";

/** How many jobs a lane holds, so that it never waits while this thread computes one of its own. */
const JOBS_IN_HAND = 2;

type Lane = {
  /** Jobs on their way. */
  readonly load: () => number;
  readonly post: (message: Exclude<ToLane, { type: "run" }>) => void;
  readonly run: (job: Job) => Promise<JobResults>;
  readonly stop: () => Promise<void>;
};

/**
 * Runs jobs in this thread and in `lanes - 1` helper threads. Small models gain more from this than from onnxruntime's
 * own threads, which share single operations of some microseconds. Each lane has a copy of the parameters, so it is not
 * for large ones; `runtime` should have one thread. The results of a job do not depend on where it runs.
 */
export function parallelRunner(options: {
  readonly runtime: Runtime;
  readonly parameters: Feeds;
  /** Names of the parameters whose arrays change. */
  readonly changing: readonly string[];
  readonly lanes: number;
  readonly callFlags: CallFlags;
  readonly pause: () => Promise<void>;
}): BatchRunner {
  const { runtime, parameters, changing, pause } = options;
  const sessions = createSessions(runtime, parameters);
  const lanes = Array.from({ length: options.lanes - 1 }, () => startLane(options.callFlags));
  const changed = (): Feeds =>
    Object.fromEntries(Object.entries(parameters).filter(([name]) => changing.includes(name)));
  let isStale = false;
  for (const lane of lanes) lane.post({ type: "parameters", parameters });

  return {
    async prepare(name, build) {
      if (sessions.has(name)) return;
      const graph = build();
      for (const lane of lanes) lane.post({ type: "prepare", name, graph });
      await sessions.add(name, graph);
    },
    async run(jobs, onResults) {
      if (isStale) for (const lane of lanes) lane.post({ type: "parameters", parameters: changed() });
      isStale = false;
      // The longest first: what is left for the end is short, and all lanes end together.
      const waiting = [...jobs.entries()].sort(([, a], [, b]) => b.cost - a.cost);
      const handOver = inOrder(onResults);
      const running: Promise<void>[] = [];
      const fill = (): void => {
        for (const lane of lanes) {
          while (lane.load() < JOBS_IN_HAND && waiting.length > lanes.length) {
            const [i, job] = waiting.shift() ?? [];
            if (i === undefined || job === undefined) return;
            const result = lane.run(job).then((results) => handOver(i, results));
            // A failure surfaces at the end of the run.
            result.catch(() => {});
            running.push(result);
          }
        }
      };
      try {
        fill();
        for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
          const [i, job] = next;
          handOver(i, await sessions.run(job));
          fill();
          await pause();
        }
      } finally {
        // Even after a failure no result may arrive later, when the caller has moved on.
        await Promise.allSettled(running);
      }
      await Promise.all(running);
    },
    parametersChanged: () => {
      isStale = true;
    },
    async release() {
      await sessions.release();
      await Promise.all(lanes.map((lane) => lane.stop()));
    },
  };
}

/** Holds results back until those of all earlier jobs have been handed over: sums of floats depend on their order. */
function inOrder(onResults: (job: number, results: JobResults) => void): typeof onResults {
  const early = new Map<number, JobResults>();
  let next = 0;
  return (job, results) => {
    early.set(job, results);
    for (let ready = early.get(next); ready !== undefined; ready = early.get(++next)) {
      early.delete(next);
      onResults(next, ready);
    }
  };
}

function startLane(callFlags: CallFlags): Lane {
  const entry = new URL(import.meta.url.endsWith(".ts") ? "./lane.ts" : "./lane.js", import.meta.url);
  const thread = startHelper<ToLane, JobResults>(entry, { threads: 1, callFlags });
  return {
    load: () => thread.load(),
    post: (message) => thread.post(message),
    run: ({ graph, feeds, dimensions }) =>
      thread.call((id) => ({ type: "run", id, job: { graph, feeds, dimensions } })),
    stop: () => thread.end({ type: "stop" }),
  };
}

import type { BuiltGraph } from "../graph/builder.ts";
import type { GraphSession, Runtime, TensorData } from "../graph/session.ts";

export type Feeds = Readonly<Record<string, TensorData>>;

/** One run of a graph that has been prepared under this name. */
export type Job = {
  readonly graph: string;
  readonly feeds: Feeds;
  readonly dimensions: Readonly<Record<string, number>>;
  /** How long it takes, in any unit. */
  readonly cost: number;
};

export type JobResults = Readonly<Record<string, Float32Array>>;

/** Where micro-batches run: in this thread, or in several at once. */
export type BatchRunner = {
  /** Compiles a graph, unless one of that name is there. */
  prepare(name: string, build: () => BuiltGraph): Promise<void>;
  /** Runs all jobs and hands over their results in the order of `jobs`, whichever was ready first. */
  run(jobs: readonly Job[], onResults: (job: number, results: JobResults) => void): Promise<void>;
  /** Must follow every change of the parameters' arrays, and come before the next run. */
  parametersChanged(): void;
  release(): Promise<void>;
};

/** Runs one job after the other in this thread; `pause` lets its other work through in between. */
export function localRunner(options: {
  readonly runtime: Runtime;
  readonly parameters: Feeds;
  readonly pause: () => Promise<void>;
}): BatchRunner {
  const { runtime, parameters, pause } = options;
  const sessions = createSessions(runtime, parameters);
  return {
    prepare: async (name, build) => {
      if (!sessions.has(name)) await sessions.add(name, build());
    },
    async run(jobs, onResults) {
      for (const [i, job] of jobs.entries()) {
        onResults(i, await sessions.run(job));
        await pause();
      }
    },
    parametersChanged: () => {},
    release: () => sessions.release(),
  };
}

/** Compiled graphs by name, which all read the same parameters. */
export function createSessions(runtime: Runtime, parameters: Feeds) {
  const sessions = new Map<string, GraphSession>();
  return {
    has: (name: string): boolean => sessions.has(name),
    async add(name: string, graph: BuiltGraph): Promise<void> {
      sessions.set(name, await runtime.createSession(graph));
    },
    run({ graph, feeds, dimensions }: Omit<Job, "cost">): Promise<JobResults> {
      const session = sessions.get(graph);
      if (session === undefined) throw new Error(`no graph was prepared as ${graph}`);
      return session.run({ ...parameters, ...feeds }, dimensions);
    },
    async release(): Promise<void> {
      for (const session of sessions.values()) await session.release();
      sessions.clear();
    },
  };
}

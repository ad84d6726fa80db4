import { z } from "zod";
import {
  TrackerRefused,
  ask,
  type TrackedEnd,
  type TrackedRun,
  type TrackedStep,
  type Tracker,
} from "./tracker.ts";

/** Names the run of ours that a run of MLflow belongs to: MLflow chooses its own ids. */
const RUN_TAG = "osmosis.run_id";
/** Limits of one `log-batch`. */
const MOST_METRICS = 1000;
const MOST_PARAMETERS = 100;
const LONGEST_PARAMETER = 500;
const LONGEST_NAME = 250;

const STATUS: Readonly<Record<TrackedEnd, string>> = {
  finished: "FINISHED",
  failed: "FAILED",
  stopped: "KILLED",
};

const Experiment = z.object({ experiment: z.object({ experiment_id: z.string() }) });
const Created = z.object({ experiment_id: z.string() });
const RunInfo = z.object({
  info: z.object({ run_id: z.string() }),
  data: z.object({ metrics: z.array(z.object({ step: z.coerce.number() })).optional() }).optional(),
});
const RunFound = z.object({ runs: z.array(RunInfo).optional() });
const RunMade = z.object({ run: RunInfo });
const Nothing = z.object({});

/**
 * An MLflow tracking server, over its REST API 2.0. Sending a step again changes nothing there: MLflow keeps a metric by
 * key, step, time and value.
 */
export function mlflowTracker(options: {
  readonly url: string;
  readonly experiment: string;
  readonly token: string | undefined;
  readonly run: TrackedRun;
  readonly fetch: typeof fetch;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}): Tracker {
  const { experiment, token, run } = options;
  const root = options.url.replace(/\/+$/, "");
  let runId = "";

  function call<T>(path: string, schema: z.ZodType<T>, signal: AbortSignal, body?: object): Promise<T> {
    return ask(options.fetch, new URL(`${root}/api/2.0/mlflow/${path}`), {
      method: body === undefined ? "GET" : "POST",
      authorization: token === undefined ? undefined : `Bearer ${token}`,
      body,
      schema,
      signal,
    });
  }

  async function experimentId(signal: AbortSignal): Promise<string> {
    const find = async (): Promise<string> => {
      const path = `experiments/get-by-name?experiment_name=${encodeURIComponent(experiment)}`;
      return (await call(path, Experiment, signal)).experiment.experiment_id;
    };
    try {
      return await find();
    } catch (error) {
      if (!isAnswer(error, "RESOURCE_DOES_NOT_EXIST")) throw error;
    }
    try {
      return (await call("experiments/create", Created, signal, { name: experiment })).experiment_id;
    } catch (error) {
      // Somebody else has made it in the meantime.
      if (!isAnswer(error, "RESOURCE_ALREADY_EXISTS")) throw error;
      return await find();
    }
  }

  return {
    name: `MLflow at ${root}, experiment ${experiment}`,
    async open(signal) {
      const experiment_id = await experimentId(signal);
      const { runs = [] } = await call("runs/search", RunFound, signal, {
        experiment_ids: [experiment_id],
        filter: `tags.\`${RUN_TAG}\` = '${run.id}'`,
        max_results: 1,
      });
      const [earlier] = runs;
      if (earlier !== undefined) {
        runId = earlier.info.run_id;
        await call("runs/update", Nothing, signal, { run_id: runId, status: "RUNNING" });
        const steps = (earlier.data?.metrics ?? []).map(({ step }) => step);
        return { lastStep: Math.max(0, ...steps) };
      }
      const made = await call("runs/create", RunMade, signal, {
        experiment_id,
        run_name: run.name,
        start_time: run.startedAt,
        tags: [{ key: RUN_TAG, value: run.id }],
      });
      runId = made.run.info.run_id;
      for (const params of chunksOf(parametersOf(run), MOST_PARAMETERS)) {
        await call("runs/log-batch", Nothing, signal, { run_id: runId, params });
      }
      return { lastStep: 0 };
    },
    async add(steps, signal) {
      for (const metrics of chunksOf(steps.flatMap(metricsOf), MOST_METRICS)) {
        await call("runs/log-batch", Nothing, signal, { run_id: runId, metrics });
      }
    },
    async end(status, signal) {
      await call("runs/update", Nothing, signal, {
        run_id: runId,
        status: STATUS[status],
        end_time: options.now(),
      });
    },
  };
}

function isAnswer(error: unknown, code: string): boolean {
  return error instanceof TrackerRefused && error.message.includes(code);
}

function metricsOf({ step, metrics, committedAt }: TrackedStep) {
  return Object.entries(metrics).map(([key, value]) => ({
    key: nameOf(key),
    value,
    timestamp: committedAt,
    step,
  }));
}

/** Parts of a reward are named by graders, in letters that MLflow refuses together with the whole batch. */
function nameOf(key: string): string {
  return key
    .replaceAll(/[^\w\-. /]/g, "_")
    .replaceAll(/\/+(?=\/|$)/g, "/_")
    .slice(0, LONGEST_NAME);
}

function parametersOf({ config }: TrackedRun) {
  return Object.entries(config).map(([key, value]) => ({
    key,
    value: (typeof value === "string" ? value : JSON.stringify(value)).slice(0, LONGEST_PARAMETER),
  }));
}

function chunksOf<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, index) =>
    items.slice(index * size, (index + 1) * size),
  );
}

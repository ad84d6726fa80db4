import { z } from "zod";
import { TrackerRefused, ask, type TrackedRun, type TrackedStep, type Tracker } from "./tracker.ts";

/**
 * The run as an earlier life left it. `historyTail` holds the last lines of the history, as JSON inside JSON.
 */
const RESUME = `query RunResumeStatus($project: String, $entity: String, $name: String!) {
  model(name: $project, entityName: $entity) {
    bucket(name: $name, missingOk: true) { historyLineCount historyTail }
  }
}`;

const UPSERT = `mutation UpsertBucket($name: String, $project: String, $entity: String, $displayName: String, $config: JSONString, $state: String) {
  upsertBucket(input: { name: $name, modelName: $project, entityName: $entity, displayName: $displayName, config: $config, state: $state }) {
    bucket { name project { name entity { name } } }
    inserted
  }
}`;

const Resumed = z.object({
  data: z.object({
    model: z
      .object({
        bucket: z
          .object({ historyLineCount: z.int().nullish(), historyTail: z.string().nullish() })
          .nullish(),
      })
      .nullish(),
  }),
});
const Upserted = z.object({
  data: z.object({
    upsertBucket: z.object({
      bucket: z.object({ project: z.object({ name: z.string(), entity: z.object({ name: z.string() }) }) }),
    }),
  }),
});
const Nothing = z.unknown();

/**
 * Weights & Biases, over the two endpoints that its own client uses: GraphQL for the run, `file_stream` for its history.
 * The history is lines by their number, so that a line which is sent again replaces itself.
 */
export function wandbTracker(options: {
  readonly url: string;
  readonly project: string;
  /** Without it the default one of the key. */
  readonly entity: string | undefined;
  readonly apiKey: string;
  readonly run: TrackedRun;
  readonly fetch: typeof fetch;
}): Tracker {
  const { project, entity, run } = options;
  const root = options.url.replace(/\/+$/, "");
  const authorization = `Basic ${Buffer.from(`api:${options.apiKey}`).toString("base64")}`;
  let stream = "";
  let lines = 0;

  function post<T>(path: string, body: object, schema: z.ZodType<T>, signal: AbortSignal): Promise<T> {
    return ask(options.fetch, new URL(root + path), { method: "POST", authorization, body, schema, signal });
  }

  async function earlierLife(variables: object, signal: AbortSignal) {
    try {
      const { data } = await post("/graphql", { query: RESUME, variables }, Resumed, signal);
      return data.model?.bucket;
    } catch (error) {
      // A project that does not exist yet may be an error there; making the run makes it.
      if (error instanceof TrackerRefused) return undefined;
      throw error;
    }
  }

  return {
    name: `Weights & Biases at ${root}, project ${project}`,
    async open(signal) {
      const names = { name: run.id, project, ...(entity === undefined ? {} : { entity }) };
      const bucket = await earlierLife(names, signal);
      const variables = {
        ...names,
        displayName: run.name,
        state: "running",
        config: JSON.stringify(
          Object.fromEntries(Object.entries(run.config).map(([key, value]) => [key, { value }])),
        ),
      };
      const upserted = await post("/graphql", { query: UPSERT, variables }, Upserted, signal);
      const { project: home } = upserted.data.upsertBucket.bucket;
      stream = `/files/${[home.entity.name, home.name, run.id].map(encodeURIComponent).join("/")}/file_stream`;
      lines = bucket?.historyLineCount ?? 0;
      return { lastStep: lastStepOf(bucket?.historyTail) ?? lines };
    },
    async add(steps, signal) {
      const last = steps.at(-1);
      if (last === undefined) return;
      const files = {
        "wandb-history.jsonl": {
          offset: lines,
          content: steps.map((step) => JSON.stringify(lineOf(run, step))),
        },
        "wandb-summary.json": { offset: 0, content: [JSON.stringify(lineOf(run, last))] },
      };
      await post(stream, { files }, Nothing, signal);
      lines += steps.length;
    },
    async end(status, signal) {
      await post(stream, { complete: true, exitcode: status === "failed" ? 1 : 0 }, Nothing, signal);
    },
  };
}

function lineOf(
  { startedAt }: TrackedRun,
  { step, metrics, committedAt }: TrackedStep,
): Record<string, number> {
  return {
    ...metrics,
    _step: step,
    _timestamp: committedAt / 1000,
    _runtime: Math.max(0, committedAt - startedAt) / 1000,
  };
}

/** Undefined where the tail says nothing that we understand. */
function lastStepOf(tail: string | null | undefined): number | undefined {
  const Lines = z.array(z.string().transform((line): unknown => JSON.parse(line)));
  try {
    const [last] = Lines.parse(JSON.parse(tail ?? "")).slice(-1);
    return z.object({ _step: z.int() }).parse(last)._step;
  } catch {
    return undefined;
  }
}

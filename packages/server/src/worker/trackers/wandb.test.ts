import { expect, test } from "vitest";
import { stepOf, strictServer, testRun, type Asked } from "./testing.ts";
import { TrackerRefused } from "./tracker.ts";
import { wandbTracker } from "./wandb.ts";

const signal = new AbortController().signal;
const KEY = "k".repeat(40);

type StreamBody = {
  files?: Record<string, { offset: number; content: string[] }>;
  complete?: boolean;
  exitcode?: number;
};

/** As much of W&B as we use: a run with the lines of its history. Anything else is a fault. */
async function fakeWandb() {
  const state = {
    config: undefined as unknown,
    history: [] as Record<string, number>[],
    summary: undefined as Record<string, number> | undefined,
    end: undefined as StreamBody | undefined,
    runs: 0,
  };
  const server = await strictServer(({ method, path, authorization, body }: Asked) => {
    if (authorization !== `Basic ${Buffer.from(`api:${KEY}`).toString("base64")}`) {
      return { status: 401, body: { errors: [{ message: "user is not logged in" }] } };
    }
    if (method !== "POST") throw new Error(`${method} ${path}`);
    if (path === "/graphql") return graphql(body);
    if (path !== `/files/my%20team/my-project/${testRun.id}/file_stream`) throw new Error(path);
    const { files = {}, ...rest } = body as StreamBody;
    for (const [name, { offset, content }] of Object.entries(files)) {
      const lines = content.map((line) => JSON.parse(line) as Record<string, number>);
      if (name === "wandb-summary.json") state.summary = lines.at(-1);
      else if (name === "wandb-history.jsonl" && offset <= state.history.length) {
        state.history.splice(offset, lines.length, ...lines);
      } else throw new Error(`${name} at ${offset}`);
    }
    if (rest.complete === true) state.end = rest;
    return { body: { exitcode: null, limits: {} } };
  });

  function graphql({ query, variables }: Record<string, unknown>) {
    const given = variables as Record<string, string>;
    if (given["name"] !== testRun.id || given["project"] !== "my-project") throw new Error("another run");
    const text = String(query);
    // The braces of a query that is one.
    if (text.split("{").length !== text.split("}").length) throw new Error("no GraphQL");
    if (text.startsWith("query RunResumeStatus(")) {
      if (state.runs === 0) return { body: { data: { model: null } } };
      const historyTail = JSON.stringify(state.history.slice(-1).map((line) => JSON.stringify(line)));
      return {
        body: { data: { model: { bucket: { historyLineCount: state.history.length, historyTail } } } },
      };
    }
    if (!text.startsWith("mutation UpsertBucket(")) throw new Error(text);
    state.runs = 1;
    state.config = JSON.parse(given["config"] ?? "");
    const project = { name: "my-project", entity: { name: "my team" } };
    return { body: { data: { upsertBucket: { bucket: { name: testRun.id, project }, inserted: true } } } };
  }
  return { ...server, state };
}

const trackerAt = (url: string, apiKey = KEY) =>
  wandbTracker({ url, project: "my-project", entity: undefined, apiKey, run: testRun, fetch });

test("a run is made under our id, gets a line for each step, and ends", async () => {
  await using wandb = await fakeWandb();
  const tracker = trackerAt(wandb.url);
  expect(await tracker.open(signal)).toEqual({ lastStep: 0 });
  await tracker.add([stepOf(1), stepOf(2)], signal);
  await tracker.add([stepOf(3)], signal);
  await tracker.end("failed", signal);
  expect(wandb.faults).toEqual([]);
  expect(wandb.state).toMatchObject({
    config: { lr: { value: 1e-5 }, loss: { value: "ppo" }, reward_range: { value: [0, 1] } },
    history: [1, 2, 3].map((step) => ({
      "rollout/raw_reward": step / 10,
      _step: step,
      _timestamp: testRun.startedAt / 1000 + step,
      _runtime: step,
    })),
    summary: { _step: 3, "rollout/raw_reward": 0.3 },
    end: { complete: true, exitcode: 1 },
  });
});

test("a stream request has the form of the official client", async () => {
  await using wandb = await fakeWandb();
  const tracker = trackerAt(wandb.url);
  await tracker.open(signal);
  await tracker.add([stepOf(1, { "a/b": 1.5 })], signal);
  await tracker.end("finished", signal);
  const sent = wandb.asked
    .filter(({ path }) => path.endsWith("file_stream"))
    .map(({ body }) => body as StreamBody);
  // What wandb 0.31.0 sent for `log({"a/b": 1.5}, step=1)` and `finish()`, without files that are ours alone.
  const line = { _runtime: expect.any(Number), _step: 1, "a/b": 1.5, _timestamp: expect.any(Number) };
  expect(sent).toHaveLength(2);
  expect(Object.keys(sent[0]?.files ?? {})).toEqual(["wandb-history.jsonl", "wandb-summary.json"]);
  for (const { offset, content } of Object.values(sent[0]?.files ?? {})) {
    expect(offset).toBe(0);
    expect(content.map((text): unknown => JSON.parse(text))).toEqual([line]);
  }
  expect(sent[1]).toEqual({ complete: true, exitcode: 0 });
});

test("another life of the run goes on in the same run, after its last line", async () => {
  await using wandb = await fakeWandb();
  const first = trackerAt(wandb.url);
  await first.open(signal);
  // A step was left out: lines and steps do not have the same numbers.
  await first.add([stepOf(1), stepOf(3)], signal);
  const second = trackerAt(wandb.url);
  expect(await second.open(signal)).toEqual({ lastStep: 3 });
  await second.add([stepOf(4)], signal);
  await second.end("finished", signal);
  expect(wandb.faults).toEqual([]);
  expect(wandb.state.history.map(({ _step }) => _step)).toEqual([1, 3, 4]);
  expect(wandb.state.end).toEqual({ complete: true, exitcode: 0 });
});

test("a request that is sent again replaces its own lines", async () => {
  await using wandb = await fakeWandb();
  let lost = true;
  const tracker = wandbTracker({
    url: wandb.url,
    project: "my-project",
    entity: undefined,
    apiKey: KEY,
    run: testRun,
    // The answer to the first lines does not arrive.
    async fetch(input, init) {
      const response = await fetch(input, init);
      if (lost && input instanceof URL && input.pathname.includes("file_stream")) {
        lost = false;
        throw new Error("connection reset");
      }
      return response;
    },
  });
  await tracker.open(signal);
  await expect(tracker.add([stepOf(1)], signal)).rejects.toMatchObject({ code: "NETWORK" });
  await tracker.add([stepOf(1)], signal);
  expect(wandb.state.history.map(({ _step }) => _step)).toEqual([1]);
});

test("a refused key and an error of GraphQL are final, and the key is in no message", async () => {
  await using wandb = await fakeWandb();
  const refused = await trackerAt(wandb.url, "x".repeat(40))
    .open(signal)
    .catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(TrackerRefused);
  expect(String(refused)).toContain("user is not logged in");
  expect(String(refused)).not.toContain("xxxx");
  await using broken = await strictServer(() => ({
    body: { data: null, errors: [{ message: "no such entity" }] },
  }));
  await expect(trackerAt(broken.url).open(signal)).rejects.toThrow(/no such entity/);
});

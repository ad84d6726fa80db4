import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { once } from "node:events";
import { expect, test } from "vitest";
import { mlflowTracker } from "./mlflow.ts";
import { stepOf, strictServer, testRun, type Asked } from "./testing.ts";
import { TrackerRefused } from "./tracker.ts";

const signal = new AbortController().signal;
const API = "/api/2.0/mlflow/";

type Metric = { key: string; value: number; timestamp: number; step: number };

/** As much of MLflow as we use; anything else, and anything that MLflow would refuse, is a fault. */
async function fakeMlflow() {
  const state = {
    experiment: undefined as string | undefined,
    run: undefined as Record<string, unknown> | undefined,
    params: [] as unknown[],
    metrics: [] as Metric[],
  };
  const server = await strictServer(({ method, path, query, authorization, body }: Asked) => {
    if (authorization !== "Bearer secret-token") throw new Error("no token");
    const name = `${method} ${path.replace(API, "")}`;
    const only = (...keys: string[]): void => {
      for (const key of Object.keys(body)) if (!keys.includes(key)) throw new Error(`${name} got ${key}`);
    };
    switch (name) {
      case "GET experiments/get-by-name":
        return state.experiment !== undefined && state.experiment === query["experiment_name"]
          ? { body: { experiment: { experiment_id: "7" } } }
          : { status: 404, body: { error_code: "RESOURCE_DOES_NOT_EXIST", message: "none" } };
      case "POST experiments/create":
        only("name");
        state.experiment = String(body["name"]);
        return { body: { experiment_id: "7" } };
      case "POST runs/search": {
        only("experiment_ids", "filter", "max_results");
        const wanted = /^tags\.`osmosis\.run_id` = '([^']+)'$/.exec(String(body["filter"]))?.[1];
        if (wanted === undefined) throw new Error(`filter ${String(body["filter"])}`);
        if (state.run === undefined) return { body: {} };
        return { body: { runs: [{ info: { run_id: "r1" }, data: { metrics: state.metrics } }] } };
      }
      case "POST runs/create":
        only("experiment_id", "run_name", "start_time", "tags");
        if (state.run !== undefined) throw new Error("a second run");
        state.run = body;
        return { body: { run: { info: { run_id: "r1" }, data: {} } } };
      case "POST runs/log-batch": {
        only("run_id", "metrics", "params");
        const metrics = (body["metrics"] ?? []) as Metric[];
        for (const { key } of metrics) {
          if (!/^[\w\-.: /]{1,250}$/.test(key) || /\/\/|\/$/.test(key)) throw new Error(`the name ${key}`);
        }
        const params = (body["params"] ?? []) as unknown[];
        if (metrics.length > 1000 || params.length > 100) throw new Error("too large a batch");
        state.metrics.push(...metrics);
        state.params.push(...params);
        return { body: {} };
      }
      case "POST runs/update":
        only("run_id", "status", "end_time");
        state.run = { ...state.run, ...body };
        return { body: { run_info: {} } };
      default:
        throw new Error(`unexpected ${name}`);
    }
  });
  return { ...server, state };
}

const trackerAt = (url: string, token: string | undefined = "secret-token") =>
  mlflowTracker({
    url,
    experiment: "my runs",
    token,
    run: testRun,
    fetch,
    now: () => testRun.startedAt + 60_000,
  });

test("a run is made with its settings, gets its steps, and ends", async () => {
  await using mlflow = await fakeMlflow();
  const tracker = trackerAt(`${mlflow.url}/`);
  expect(await tracker.open(signal)).toEqual({ lastStep: 0 });
  const many = Object.fromEntries(Array.from({ length: 600 }, (_, index) => [`m/${index}`, index]));
  await tracker.add([stepOf(1, many), stepOf(2, many)], signal);
  await tracker.end("failed", signal);
  expect(mlflow.faults).toEqual([]);
  expect(mlflow.state).toMatchObject({
    experiment: "my runs",
    run: {
      run_name: "brave-otter-7",
      start_time: testRun.startedAt,
      tags: [{ key: "osmosis.run_id", value: testRun.id }],
      status: "FAILED",
      end_time: testRun.startedAt + 60_000,
    },
    params: [
      { key: "lr", value: "0.00001" },
      { key: "loss", value: "ppo" },
      { key: "reward_range", value: "[0,1]" },
    ],
  });
  expect(mlflow.state.metrics).toHaveLength(1200);
  expect(mlflow.state.metrics.at(-1)).toEqual({
    key: "m/599",
    value: 599,
    timestamp: testRun.startedAt + 2000,
    step: 2,
  });
});

test("a name that MLflow would refuse is written with letters that it takes", async () => {
  await using mlflow = await fakeMlflow();
  const tracker = trackerAt(mlflow.url);
  await tracker.open(signal);
  const odd = ["f1 (%)", "größe", "a//b", "trailing/", "x".repeat(400)];
  await tracker.add(
    [stepOf(1, Object.fromEntries(odd.map((name) => [`rollout/component/${name}`, 1])))],
    signal,
  );
  expect(mlflow.faults).toEqual([]);
  expect(mlflow.state.metrics.map(({ key }) => key.slice(0, 40))).toEqual([
    "rollout/component/f1 ___",
    "rollout/component/gr__e",
    "rollout/component/a/_/b",
    "rollout/component/trailing/_",
    `rollout/component/${"x".repeat(22)}`,
  ]);
});

test("another life of the run goes on in the same run of MLflow, after the last step that it has", async () => {
  await using mlflow = await fakeMlflow();
  await trackerAt(mlflow.url).open(signal);
  await trackerAt(mlflow.url).open(signal);
  const first = trackerAt(mlflow.url);
  await first.open(signal);
  await first.add([stepOf(1), stepOf(2)], signal);
  const second = trackerAt(mlflow.url);
  expect(await second.open(signal)).toEqual({ lastStep: 2 });
  await second.add([stepOf(3)], signal);
  await second.end("finished", signal);
  expect(mlflow.faults).toEqual([]);
  expect(mlflow.state.metrics.map(({ step }) => step)).toEqual([1, 2, 3]);
  expect(mlflow.state.run).toMatchObject({ status: "FINISHED" });
});

test("what MLflow refuses is told with its own words, and a place that is no MLflow is not taken for one", async () => {
  await using mlflow = await fakeMlflow();
  await expect(trackerAt(mlflow.url, "wrong").open(signal)).rejects.toThrow(TrackerRefused);
  await expect(trackerAt(mlflow.url, "wrong").open(signal)).rejects.toThrow(/answered 400.*no token/);
  await using other = await strictServer(() => ({ body: "hello" }));
  await expect(trackerAt(other.url).open(signal)).rejects.toThrow(/unexpected answer/);
  await using moved = await strictServer(() => ({ status: 302, body: {} }));
  await expect(trackerAt(moved.url).open(signal)).rejects.toThrow(/answered 302/);
  await using busy = await strictServer(() => ({ status: 503, body: {} }));
  await expect(trackerAt(busy.url).open(signal)).rejects.toMatchObject({ code: "NETWORK" });
});

const python = process.env["OSMOSIS_TEST_MLFLOW_PYTHON"];

test.skipIf(python === undefined)(
  "a real MLflow server takes a run in two lives (needs OSMOSIS_TEST_MLFLOW_PYTHON, a Python with mlflow)",
  async () => {
    await using server = await realMlflow(python ?? "");
    const first = mlflowTracker({ ...real(server.url), now: Date.now });
    expect(await first.open(signal)).toEqual({ lastStep: 0 });
    await first.add([stepOf(1), stepOf(2)], signal);
    const second = mlflowTracker({ ...real(server.url), now: Date.now });
    expect(await second.open(signal)).toEqual({ lastStep: 2 });
    // Sent twice, kept once.
    await second.add(
      [
        stepOf(2),
        stepOf(3, {
          "rollout/raw_reward": 0.3,
          "rollout/component/f1 (%)/mean": 8,
          "rollout/component/größe//b": 1,
        }),
      ],
      signal,
    );
    await second.end("finished", signal);

    const ask = async (path: string, body?: object): Promise<unknown> => {
      const posted = {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      };
      const response = await fetch(`${server.url}${API}${path}`, body === undefined ? {} : posted);
      expect(response.ok).toBe(true);
      return await response.json();
    };
    const named = await ask("experiments/get-by-name?experiment_name=my%20runs");
    const { experiment } = named as { experiment: { experiment_id: string } };
    const found = (await ask("runs/search", { experiment_ids: [experiment.experiment_id] })) as {
      runs: { info: { run_id: string; run_name: string; status: string }; data: { params: object[] } }[];
    };
    expect(found.runs).toHaveLength(1);
    expect(found.runs[0]).toMatchObject({ info: { run_name: "brave-otter-7", status: "FINISHED" } });
    expect(found.runs[0]?.data.params).toContainEqual({ key: "loss", value: "ppo" });
    const key = encodeURIComponent("rollout/raw_reward");
    const history = (await ask(
      `metrics/get-history?run_id=${found.runs[0]?.info.run_id}&metric_key=${key}`,
    )) as { metrics: Metric[] };
    const points = history.metrics.map(({ step, value }) => [step, value] as const);
    expect(points.toSorted(([a], [b]) => a - b)).toEqual([
      [1, 0.1],
      [2, 0.2],
      [3, 0.3],
    ]);
  },
  180_000,
);

const real = (url: string) => ({ url, experiment: "my runs", token: undefined, run: testRun, fetch });

async function realMlflow(executable: string) {
  await using stack = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), "osmosis-mlflow-"));
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const port = await freePort();
  const child = spawn(
    executable,
    [
      "-m",
      "mlflow",
      "server",
      "--host=127.0.0.1",
      `--port=${port}`,
      "--workers=1",
      `--backend-store-uri=sqlite:///${folder}/mlflow.db`,
      `--default-artifact-root=${folder}`,
    ],
    // A group of its own: the command starts workers.
    { cwd: folder, stdio: "ignore", detached: true },
  );
  const exited = once(child, "exit");
  stack.defer(async () => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
    await exited;
  });
  const url = `http://127.0.0.1:${port}`;
  const end = Date.now() + 150_000;
  while (
    !(await fetch(`${url}/health`).then(
      ({ ok }) => ok,
      () => false,
    ))
  ) {
    if (Date.now() > end || child.exitCode !== null) throw new Error("MLflow does not start");
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  const resources = stack.move();
  return { url, [Symbol.asyncDispose]: () => resources.disposeAsync() };
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

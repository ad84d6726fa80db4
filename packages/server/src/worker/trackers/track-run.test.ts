import { systemClock, type RunEnd } from "@osmosis/controller";
import { ModelLost } from "@osmosis/engine";
import { OsmosisError, TrainingRunConfig, type TrainingJob } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { StopRequested } from "../lease-keeper.ts";
import { LeaseLost } from "../platform-call.ts";
import type { RunLink } from "../platform-link.ts";
import type { RunLog } from "../run-log.ts";
import { strictServer } from "./testing.ts";
import { trackRun } from "./track-run.ts";

const SECRET = "a-secret-that-is-not-to-be-told";

function jobOf(advanced: object, committed = 0): TrainingJob {
  return {
    kind: "training",
    run_id: "run-1",
    run_name: "brave-otter-7",
    attempt: 1,
    lease_token: "lease",
    lease_seconds: 30,
    rollout: "multiply",
    entrypoint: "main.ts",
    commit_sha: "c".repeat(40),
    env: { NOISE: "not-for-trackers" },
    secrets: { MLFLOW_TRACKING_TOKEN: "token", OTHER: SECRET },
    model: { type: "local", name: "m", base_model: "m", base_files: [], adapter_files: [] },
    row_count: 8,
    config: TrainingRunConfig.parse({
      experiment: { rollout: "multiply", entrypoint: "main.ts", model_path: "m", dataset: "d" },
      env: { NOISE: "not-for-trackers" },
      secrets: { required: ["MLFLOW_TRACKING_TOKEN", "OTHER"] },
      advanced: { trainer: "http://inner.example", ...advanced },
    }),
    total_steps: 5,
    committed_steps: committed,
    past_steps: [],
    state_files: [],
  };
}

/** A tracking server that knows no earlier run. */
async function mlflow() {
  const server = await strictServer(({ path }) => {
    if (path.endsWith("get-by-name")) return { body: { experiment: { experiment_id: "1" } } };
    if (path.endsWith("search")) return { body: {} };
    return { body: path.endsWith("create") ? { run: { info: { run_id: "r1" } } } : {} };
  });
  return Object.assign(server, {
    steps: () =>
      server.asked.flatMap(({ body }) =>
        ((body["metrics"] ?? []) as { step: number }[]).map(({ step }) => step),
      ),
    states: () =>
      server.asked.filter(({ path }) => path.endsWith("update")).map(({ body }) => body["status"]),
  });
}

/** Runs `work` with a link whose commits are kept in order. */
async function track(
  job: TrainingJob,
  work: (link: RunLink, abort: (reason: unknown) => void) => Promise<RunEnd>,
) {
  const committed: number[] = [];
  const logs: string[] = [];
  const lease = new AbortController();
  // As much of a link and a log as is used.
  const link = {
    commitStep: async ({ step }: { step: number }) => void committed.push(step),
    committedSteps: async (after: number) =>
      [1, 2, 3]
        .filter((step) => step > after && step <= job.committed_steps)
        .map((step) => ({ step, metrics: { loss: step }, committed_at: new Date(0).toISOString() })),
  } as unknown as RunLink;
  const log = {
    write: (_level: string, _step: string, message: string) => logs.push(message),
  } as unknown as RunLog;
  const parts = { link, log, fetch, clock: systemClock, now: Date.now, signal: lease.signal };
  const result = await trackRun(job, parts, (tracked) =>
    work(tracked, (reason) => lease.abort(reason)),
  ).catch((error: unknown) => error);
  return { result, committed, logs };
}

const commit = (link: RunLink, step: number) =>
  link.commitStep(
    { step, metrics: { loss: step }, examples: 1, state_files: [] },
    new AbortController().signal,
  );

test("without a tracker in the configuration the link stays as it is, and nobody is asked", async () => {
  const { result, logs } = await track(jobOf({}), async (link) => {
    await commit(link, 1);
    return { status: "finished" };
  });
  expect(result).toEqual({ status: "finished" });
  expect(logs).toEqual([]);
});

test("committed steps go to the tracker, with settings but no secret, address or variable", async () => {
  await using server = await mlflow();
  const { result, committed } = await track(jobOf({ mlflow_url: server.url }), async (link) => {
    await commit(link, 1);
    await commit(link, 2);
    return { status: "finished" };
  });
  expect(result).toEqual({ status: "finished" });
  expect(committed).toEqual([1, 2]);
  expect(server.steps()).toEqual([1, 2]);
  expect(server.states()).toEqual(["FINISHED"]);
  const told = JSON.stringify(server.asked.map(({ body }) => body));
  expect(told).toContain('{"key":"loss","value":"ppo"}');
  for (const hidden of [SECRET, "not-for-trackers", "inner.example", server.url])
    expect(told).not.toContain(hidden);
});

test("a run that is taken over sends what its first life committed and did not tell", async () => {
  await using server = await mlflow();
  await track(jobOf({ mlflow_url: server.url }, 3), async (link) => {
    await commit(link, 4);
    return { status: "failed", error: "enough" };
  });
  expect(server.steps()).toEqual([1, 2, 3, 4]);
  expect(server.states()).toEqual(["FAILED"]);
});

test("a stopped run is ended in the tracker, one whose worker goes away is left open", async () => {
  await using server = await mlflow();
  const endBy = (reason: Error) =>
    track(jobOf({ mlflow_url: server.url }), async (link, abort) => {
      await commit(link, 1);
      abort(reason);
      throw reason;
    });
  expect((await endBy(new StopRequested())).result).toBeInstanceOf(StopRequested);
  expect(server.states()).toEqual(["KILLED"]);
  await endBy(new Error("the worker is ending"));
  expect(server.states()).toEqual(["KILLED"]);
});

test("a run that goes back to the queue, its lease or its trainer's model lost, is left open in the tracker", async () => {
  await using server = await mlflow();
  const restarted = new OsmosisError("NOT_FOUND", "There is no such model.");
  for (const reason of [new LeaseLost("gone"), new ModelLost(restarted)]) {
    const { result } = await track(jobOf({ mlflow_url: server.url }), async (link) => {
      await commit(link, 1);
      throw reason;
    });
    expect(result).toBe(reason);
  }
  expect(server.states()).toEqual([]);
});

test("a tracker that is not there costs the run nothing but a line in its log", async () => {
  const job = jobOf({ mlflow_url: "http://127.0.0.1:9" });
  const { result, committed, logs } = await track(job, async (link) => {
    await commit(link, 1);
    return { status: "finished" };
  });
  expect(result).toEqual({ status: "finished" });
  expect(committed).toEqual([1]);
  expect(logs).toHaveLength(1);
}, 20_000);

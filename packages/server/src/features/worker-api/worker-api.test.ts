import { evalRoutes, trainingRoutes } from "@osmosis/protocol";
import type { Transaction } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Tables } from "../../database/tables.ts";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, until, type TestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";
import { RUN_QUEUE } from "../../queue/job-types.ts";
import { STATES_KEPT_MS, discardStates } from "../runs/states.ts";
import { putRunFile } from "./files.ts";
import { recordRollouts } from "./records.ts";

const rows = Array.from({ length: 20 }, (_, n) => `{"user_prompt":"${n}\u2028","label":"${n}"}\n`).join("");

withDatabaseLocation("the worker API", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
    await workspace.upload("rows", rows);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const experiment_config = {
    rollout: "multiply",
    entrypoint: "main.ts",
    model_path: "osmosis/tiny-agent",
    dataset: "rows",
  };
  const submitEval = () =>
    workspace.client.call(evalRoutes.submit, {
      body: { experiment_config, evaluation_config: { limit: 100 } },
    });
  const submitTraining = () =>
    workspace.client.call(trainingRoutes.submit, {
      body: { experiment_config, training_config: { rollout_batch_size: 4, n_samples_per_prompt: 2 } },
    });
  const evalStatus = async (name: string) =>
    (await workspace.client.call(evalRoutes.get, { params: { name } })).eval_run;
  const worker = (name?: string) =>
    createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret }, name);
  const start = async () => {
    const one = worker();
    const job = await one.claim();
    if (job === null) throw new Error("no run came");
    return { worker: one, job, run: one.run(job) };
  };
  const expireLeases = () => server.advance(server.platform.config.leaseSeconds * 1000 + 1);

  test("a call without the worker's secret is refused, a user's token included", async () => {
    for (const token of [null, "wrong", server.ownerToken]) {
      const { status, body } = await server.json("POST", "/api/worker/claim", {
        token,
        json: { worker: "w", instance: "i", wait_ms: 0 },
      });
      expect(status).toBe(401);
      expect(body).toMatchObject({ code: token === null ? "AUTH_HEADER_MISSING" : "TOKEN_INVALID" });
    }
  });

  test("a claim waits for a run, and answers null when none comes", async () => {
    const one = worker();
    expect(await one.claim(50)).toBeNull();
    const claiming = one.claim(20_000);
    const { id } = await submitEval();
    const job = await claiming;
    expect(job?.run_id).toBe(id);
    if (job) await one.run(job).finish();
  });

  test("of many workers that ask for one run one gets it", async () => {
    const { id } = await submitEval();
    const workers = Array.from({ length: 6 }, () => worker());
    const jobs = await Promise.all(workers.map((one) => one.claim(300)));
    expect(jobs.filter((job) => job !== null).map((job) => job.run_id)).toEqual([id]);
    for (const [index, job] of jobs.entries()) if (job !== null) await workers[index]?.run(job).finish();
  });

  test("rows come whole, and the commit as a tar archive", async () => {
    await submitEval();
    const { run } = await start();
    const lines = await run.rows();
    expect(lines).toHaveLength(20);
    expect(lines[3]).toMatchObject({ row_index: 3, messages: [{ role: "user", content: "3\u2028" }] });
    const archive = await run.source();
    expect(archive.includes("rollouts/multiply/main.ts")).toBe(true);
    await run.finish();
  });

  describe("a lease", () => {
    test("that has expired refuses every write, and the run goes on elsewhere with what was recorded", async () => {
      const { name } = await submitEval();
      const first = await start();
      const kept = testRollout({ row_index: 1 });
      await first.run.record(kept);
      expireLeases();
      const late = testRollout({ row_index: 2 });
      const writes = {
        record: () => first.run.record(late),
        heartbeat: () => first.run.heartbeat(),
        log: () => first.run.log("late"),
        finish: () => first.run.finish(),
        commit: () => first.run.commit(1),
        checkpoint: () => first.run.checkpoint(1),
      };
      for (const [what, write] of Object.entries(writes)) {
        await expect(write(), what).rejects.toMatchObject({ code: "CONFLICT" });
      }
      expect((await first.run.put("state/1/a", "x")).status).toBe(409);
      // The sweeper of the server finds it within seconds.
      const second = await start();
      expect(second.job).toMatchObject({ run_id: first.job.run_id, attempt: 2 });
      for (const [what, write] of Object.entries(writes)) {
        await expect(write(), what).rejects.toThrow(/was given to another worker/);
      }
      expect(await second.run.rollouts()).toEqual([kept]);
      await second.run.finish();
      expect(await evalStatus(name)).toMatchObject({ status: "finished", results: { total_runs: 1 } });
    });

    test("that is renewed does not end", async () => {
      await submitEval();
      const { run } = await start();
      for (let beat = 0; beat < 4; beat += 1) {
        server.advance(server.platform.config.leaseSeconds * 750);
        expect(await run.heartbeat()).toEqual({ stop_requested: false });
      }
      await run.record(testRollout());
      await run.finish();
    });

    test("is given up at once when its worker starts again", async () => {
      await submitEval();
      const before = worker("again");
      const held = await before.claim();
      if (held === null) throw new Error("no run came");
      const after = worker("again");
      const job = await after.claim(2000);
      expect(job).toMatchObject({ run_id: held.run_id, attempt: 2 });
      await expect(before.run(held).record(testRollout())).rejects.toMatchObject({ code: "CONFLICT" });
      // The former start is over; should it still ask, it takes nothing from the new one.
      expect(await before.claim(50)).toBeNull();
      if (job) await after.run(job).finish();
    });

    test("is given up at once by a worker that asks for more: it never heard of the run", async () => {
      await submitEval();
      const one = worker();
      const first = await one.claim();
      const second = await one.claim(2000);
      expect(second?.run_id).toBe(first?.run_id);
      expect(second?.lease_token).not.toBe(first?.lease_token);
      if (second) await one.run(second).finish();
    });

    test("goes on when the queue has forgotten it: nobody else gets the run", async () => {
      const { id } = await submitEval();
      const { run } = await start();
      await server.platform.queue.fail({ queue: RUN_QUEUE, id, attempt: 0 }, "not heard of", { retry: true });
      expect(await worker().claim(300)).toBeNull();
      await run.heartbeat();
      await run.record(testRollout());
      expireLeases();
      const second = await start();
      expect(second.job).toMatchObject({ run_id: id, attempt: 2 });
      await second.run.finish();
      expect(await worker().claim(100)).toBeNull();
    });

    test("of a run whose end was asked for is not given to anybody else", async () => {
      const { name } = await submitEval();
      await start();
      await server.json("POST", `/api/cli/eval-runs/${name}/stop`, { json: {}, headers: workspace.headers });
      expireLeases();
      const run = await until(async () => {
        const now = await evalStatus(name);
        return now.status !== "running" && now;
      });
      expect(run.status).toBe("stopped");
      expect(await worker().claim(100)).toBeNull();
    });

    test("is not needed to know: a wrong one and none are refused", async () => {
      await submitEval();
      const { job, worker: one, run } = await start();
      await expect(one.run({ ...job, lease_token: "guess" }).record(testRollout())).rejects.toMatchObject({
        code: "CONFLICT",
      });
      const { status } = await server.json("POST", `/api/worker/runs/${job.run_id}/heartbeat`, {
        token: server.platform.workerSecret,
        json: {},
      });
      expect(status).toBe(400);
      await run.finish();
    });
  });

  test("a run that kills its workers again and again ends, and says why", async () => {
    const { name } = await submitTraining();
    for (let attempt = 1; attempt <= 5; attempt += 1) {
      const job = await worker("victim").claim();
      expect(job?.attempt).toBe(attempt);
    }
    expect(await worker("victim").claim(300)).toBeNull();
    const { training_run } = await workspace.client.call(trainingRoutes.get, { params: { name } });
    expect(training_run).toMatchObject({
      status: "crashed",
      error: expect.stringMatching(/5 workers in a row lost it without recording anything/),
    });
  });

  test("whoever records something has five more attempts", async () => {
    await submitEval();
    for (let attempt = 1; attempt <= 8; attempt += 1) {
      const one = worker("slow");
      const job = await one.claim();
      if (job === null) throw new Error(`attempt ${attempt} got nothing`);
      expect(job.attempt).toBe(attempt);
      if (attempt % 4 === 0) await one.run(job).record(testRollout());
      if (attempt === 8) await one.run(job).finish();
    }
  });

  test("recording twice, finishing twice and an empty record are the same as once", async () => {
    const { name } = await submitEval();
    const { run } = await start();
    const [a, b] = [testRollout({ row_index: 1, reward: 1 }), testRollout({ row_index: 2, reward: 0 })];
    await run.record(a, b);
    await run.record(b);
    await run.record({ ...a, reward: 0 }, testRollout({ row_index: 3 }));
    await run.record();
    expect(await run.rollouts()).toHaveLength(3);
    await run.finish();
    await run.finish();
    await expect(run.record(testRollout())).rejects.toMatchObject({ code: "CONFLICT" });
    expect(await evalStatus(name)).toMatchObject({
      status: "finished",
      results: { total_runs: 3, passed: 2 },
    });
  });

  test("the last file of a model can be fetched when the files before it took hours", async () => {
    await submitTraining();
    const { job, run } = await start();
    const file = job.model.type === "local" ? job.model.base_files.at(-1) : undefined;
    // Its lease would end, which is not the point here.
    await run.finish();
    const hours = 3 * 3600_000;
    server.advance(hours);
    try {
      expect((await run.get(file?.url ?? "")).status).toBe(200);
    } finally {
      server.advance(-hours);
    }
  });

  test("finishing again before the first answer has come is the same as once", async () => {
    await submitEval();
    const { run } = await start();
    await Promise.all(Array.from({ length: 8 }, () => run.finish()));
  });

  test("any number of rollouts may be recorded at once", async () => {
    await submitEval();
    const { run } = await start();
    const many = Array.from({ length: 4000 }, (_, index) => testRollout({ sample_index: index }));
    await run.record(...many);
    expect(await run.rollouts()).toHaveLength(many.length);
    await run.finish();
  });

  describe("when the connection breaks after a commit and before its answer", () => {
    /** The platform's parts, whose transactions are committed and never heard of. */
    function unheard() {
      const { platform } = server;
      const transaction = () => ({
        async execute<T>(work: (inner: Transaction<Tables>) => Promise<T>): Promise<T> {
          await platform.db.transaction().execute(work);
          throw new Error("Connection terminated unexpectedly");
        },
      });
      const db = new Proxy(platform.db, {
        get: (inner, name) => {
          const value: unknown = name === "transaction" ? transaction : Reflect.get(inner, name, inner);
          return typeof value === "function" ? (value.bind(inner) as unknown) : value;
        },
      });
      return { ...platform, db, bell: platform.runBell };
    }

    test("rollouts are kept whole", async () => {
      await submitEval();
      const { job, run } = await start();
      const kept = testRollout();
      const lease = { runId: job.run_id, token: job.lease_token };
      await expect(recordRollouts(unheard(), lease, [kept])).rejects.toThrow("Connection terminated");
      await run.record(kept);
      expect(await run.rollouts()).toMatchObject([{ rollout_id: kept.rollout_id, messages: kept.messages }]);
      await run.finish();
    });

    test("a file has its bytes, and so has the one that takes its place", async () => {
      await submitTraining();
      const { job, run } = await start();
      const lease = { runId: job.run_id, token: job.lease_token };
      const put = (text: string) =>
        putRunFile(unheard(), lease, {
          path: "state/1/weights",
          body: new Blob([text]).stream(),
          signal: new AbortController().signal,
        });
      const { db, blobs } = server.platform;
      const stored = async () => {
        const { key } = await db
          .selectFrom("run_files")
          .select("key")
          .where("run_id", "=", job.run_id)
          .executeTakeFirstOrThrow();
        return await new Response((await blobs.get(key))?.body).text();
      };
      await expect(put("first")).rejects.toThrow("Connection terminated");
      expect(await stored()).toBe("first");
      await expect(put("second")).rejects.toThrow("Connection terminated");
      expect(await stored()).toBe("second");
      await run.finish();
    });
  });

  test("a failed run keeps its reason", async () => {
    const { name } = await submitEval();
    const { run } = await start();
    await run.finish("failed", "The entrypoint threw: \0boom");
    expect(await evalStatus(name)).toMatchObject({
      status: "failed",
      error: "The entrypoint threw: \uFFFDboom",
    });
  });

  describe("training steps", () => {
    test("are committed in order, each once, with the state after them; the last two states are kept", async () => {
      const { name } = await submitTraining();
      const first = await start();
      const { run } = first;
      await expect(run.commit(2)).rejects.toMatchObject({
        code: "CONFLICT",
        message: "Step 2 cannot be committed: the last committed step is 0.",
      });
      await expect(run.commit(1, { state_files: ["weights"] })).rejects.toThrow(
        "The file state/1/weights was not uploaded.",
      );
      for (let step = 1; step <= 4; step += 1) {
        await run.record(testRollout({ phase: "train", step, rollout_id: `r${step}` }));
        await run.put(`state/${step}/weights`, `weights ${step}`);
        await run.commit(step, {
          metrics: { "rollout/raw_reward": step },
          examples: 2,
          state_files: ["weights"],
        });
        await run.commit(step, { metrics: { "rollout/raw_reward": 99 }, examples: 99, state_files: [] });
      }
      await run.record(testRollout({ phase: "train", step: 5, rollout_id: "r5" }));
      const states = [];
      for await (const blob of server.platform.blobs.list(`runs/${first.job.run_id}/files/state`))
        states.push(blob.key);
      expect(states.map((key) => key.split("/").slice(3, 6).join("/"))).toEqual([
        "state/3/weights",
        "state/4/weights",
      ]);

      expireLeases();
      const second = await start();
      if (second.job.kind !== "training") throw new Error("expected training");
      expect(second.job).toMatchObject({ committed_steps: 4, attempt: 2 });
      expect(second.job.state_files.map((file) => file.name)).toEqual(["weights"]);
      expect(await (await second.run.get(second.job.state_files[0]?.url ?? "")).text()).toBe("weights 4");
      // What step 5 has already is not lost, what committed steps used does not come again.
      expect((await second.run.rollouts()).map((one) => one["rollout_id"])).toEqual(["r5"]);
      await second.run.finish();
      const { training_run } = await workspace.client.call(trainingRoutes.get, { params: { name } });
      expect(training_run).toMatchObject({ current_step: 4, examples_processed_count: 8, reward: 4 });
      const left = async () => {
        const keys = [];
        for await (const blob of server.platform.blobs.list(`runs/${first.job.run_id}/files/state`))
          keys.push(blob.key);
        return keys;
      };
      // A replay of the last step begins with them.
      expect(await left()).toHaveLength(2);
      server.advance(STATES_KEPT_MS + 1);
      await discardStates(server.platform, first.job.run_id);
      expect(await left()).toEqual([]);
      server.advance(-STATES_KEPT_MS - 1);
    });

    test("a checkpoint is one model however often it is registered, and its files are the last", async () => {
      const { name } = await submitTraining();
      const { run } = await start();
      await run.put("checkpoints/1/weights", "old");
      await run.checkpoint(1, { files: ["weights"] });
      await run.put("checkpoints/1/weights", "new weights");
      expect(await run.checkpoint(1, { files: ["weights"], reward: 1 })).toEqual({ name: `${name}-step-1` });
      const { checkpoints } = await workspace.client.call(trainingRoutes.checkpoints, { params: { name } });
      expect(checkpoints).toMatchObject([{ checkpoint_step: 1, reward: 1 }]);
      await expect(run.checkpoint(2, { files: ["absent"] })).rejects.toThrow("was not uploaded");
      await run.finish();
    });

    test.each(["../x", "state/1", "state/0/x", "state/1/a/b", "checkpoints/x/y", "other/1/x", "state/1/.."])(
      "a file cannot be stored at %s",
      async (path) => {
        await submitTraining();
        const { run } = await start();
        expect((await run.put(path, "x")).status).toBe(400);
        await run.finish();
      },
    );
  });
});

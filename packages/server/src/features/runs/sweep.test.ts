import { randomUUID } from "node:crypto";
import { RUN_LEASE_HEADER, createClient, evalRoutes, sharingRoutes, trainingRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { jsonb } from "../../database/columns.ts";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";
import { deleteUnusedModelFiles } from "../models/sweep.ts";
import { deleteUnusedRunBytes } from "./sweep.ts";

const HOUR = 3600_000;
const rows = Array.from({ length: 20 }, (_, n) => `{"user_prompt":"${n}","label":"${n}"}\n`).join("");

withDatabaseLocation("the sweep", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
    await workspace.upload("rows", rows);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const experiment = (model = "osmosis/tiny-agent") => ({
    rollout: "multiply",
    entrypoint: "main.ts",
    model_path: model,
    dataset: "rows",
  });
  const claim = async () => {
    const worker = createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
    const job = await worker.claim();
    if (job === null) throw new Error("no run came");
    return { job, run: worker.run(job) };
  };
  const train = async (advanced_config = {}) => {
    const { name } = await workspace.client.call(trainingRoutes.submit, {
      body: {
        experiment_config: experiment(),
        training_config: { rollout_batch_size: 4, n_samples_per_prompt: 2, total_epochs: 10 },
        advanced_config,
      },
    });
    return { name, ...(await claim()) };
  };
  const keysBelow = async (prefix: string) => {
    const keys = [];
    for await (const { key } of server.platform.blobs.list(prefix)) keys.push(key);
    return keys;
  };
  /** With the clock so many milliseconds later. */
  const later = async (milliseconds: number, work: () => Promise<void>) => {
    server.advance(milliseconds);
    try {
      await work();
    } finally {
      server.advance(-milliseconds);
    }
  };

  test("deletes blobs of runs that no row names, and none that one names", async () => {
    const { platform } = server;
    const { job, run } = await train();
    await run.record(testRollout({ phase: "train", step: 1 }), testRollout({ phase: "train", step: 1 }));
    await run.put("state/1/weights", "state");
    await run.put("checkpoints/1/weights", "checkpoint");
    await run.checkpoint(1, { files: ["weights"], reward: 1 });
    await run.commit(1, { state_files: ["weights"] });
    const named = await keysBelow("runs");
    expect(named.filter((key) => key.includes(job.run_id))).toHaveLength(3);
    // As a process leaves them that is killed between the blob and the row, and a run that was deleted.
    for (const key of [
      `runs/${job.run_id}/files/state/2/weights/${randomUUID()}`,
      `runs/${job.run_id}/rollouts/${randomUUID()}.jsonl`,
      `runs/${randomUUID()}/files/checkpoints/1/weights/${randomUUID()}`,
    ]) {
      await platform.blobs.put(key, Buffer.from("left"));
    }
    await deleteUnusedRunBytes(platform);
    expect(await keysBelow("runs")).toHaveLength(named.length + 3);
    await later(2 * HOUR, () => deleteUnusedRunBytes(platform));
    expect(await keysBelow("runs")).toEqual(named);
    await run.finish();
  });

  test("takes a checkpoint whose time had come when an evaluation still needed it, and states a week after the end", async () => {
    const { name, job, run } = await train({ keep_checkpoints: 1 });
    const files = () => keysBelow(`runs/${job.run_id}/files`);
    await run.put("state/1/weights", "state");
    await run.commit(1, { state_files: ["weights"] });
    const keep = async (step: number, reward: number) => {
      await run.put(`checkpoints/${step}/weights`, `weights ${step}`);
      await run.checkpoint(step, { files: ["weights"], reward });
    };
    await keep(1, 0.9);
    await keep(2, 0.1);
    await workspace.client.call(evalRoutes.submit, {
      body: { experiment_config: experiment(`${name}-step-2`), evaluation_config: { limit: 1 } },
    });
    await keep(3, 0.2);
    await run.finish();
    const steps = async () => (await files()).map((key) => key.split("/").slice(3, 5).join("/"));
    const all = ["checkpoints/1", "checkpoints/2", "checkpoints/3", "state/1"];
    await later(2 * HOUR, () => deleteUnusedRunBytes(server.platform));
    expect(await steps()).toEqual(all);
    const evaluation = await claim();
    await evaluation.run.finish();
    await deleteUnusedRunBytes(server.platform);
    expect(await steps()).toEqual(["checkpoints/1", "checkpoints/3", "state/1"]);
    await later(8 * 24 * HOUR, () => deleteUnusedRunBytes(server.platform));
    expect(await steps()).toEqual(["checkpoints/1", "checkpoints/3"]);
  });

  test("deletes the shares and weights of a run whose server was killed as it ended", async () => {
    const { platform } = server;
    const { job, run } = await train({ rollout_workers: 2 });
    const authorization = `Bearer ${platform.workerSecret}`;
    const client = createClient({ baseUrl: server.url, fetch, headers: () => ({ authorization }) });
    const at = { params: { run_id: job.run_id }, headers: { [RUN_LEASE_HEADER]: job.lease_token } };
    await run.put("weights/0/adapter", "weights");
    const weights = { version: 0, method: "lora" as const, files: ["adapter"] };
    await client.call(sharingRoutes.weights, { ...at, body: weights });
    const share = { share_id: randomUUID(), phase: "train" as const, step: 1 };
    const tasks = [{ rollout_id: "one", row_index: 0, options: {} }];
    await client.call(sharingRoutes.publish, { ...at, body: { shares: [{ ...share, tasks }] } });
    await deleteUnusedRunBytes(platform);
    const left = async () => [
      ...(await platform.db.selectFrom("run_shares").select("id").where("run_id", "=", job.run_id).execute()),
      ...(await keysBelow(`runs/${job.run_id}/files/weights`)),
    ];
    expect(await left()).toHaveLength(2);
    // The end is durable before what follows from it is done.
    await platform.db
      .updateTable("runs")
      .set({ status: "finished", completed_at: platform.now(), lease_expires_at: null })
      .where("id", "=", job.run_id)
      .execute();
    await deleteUnusedRunBytes(platform);
    expect(await left()).toEqual([]);
  });

  test("deletes files of models that nothing needs any more, a day after the last change, and parts of uploads after a week", async () => {
    const { platform } = server;
    const { blobs, db, now } = platform;
    const shipped = await keysBelow("models/files");
    const put = async (key: string) => {
      await blobs.put(key, Buffer.from(key));
      return { name: "model.safetensors", key, size_bytes: key.length, sha256: key, modified_ms: 0 };
    };
    const [replaced, current, unnamed] = [
      await put("models/files/replaced"),
      await put("models/files/current"),
      await put("models/files/unnamed"),
    ];
    const part = "models/uploads/part/9/1";
    await put(part);
    const base = (files: (typeof replaced)[]) => ({ files: jsonb(files), parameters: 1, updated_at: now() });
    await db
      .insertInto("base_models")
      .values({
        id: randomUUID(),
        name: "my/model",
        ...base([replaced]),
        imported_by: null,
        is_available: true,
      })
      .execute();
    // A run began with what is replaced then.
    await workspace.client.call(trainingRoutes.submit, {
      body: { experiment_config: experiment("my/model"), training_config: { rollout_batch_size: 4 } },
    });
    const { run } = await claim();
    await db
      .updateTable("base_models")
      .set(base([current]))
      .where("name", "=", "my/model")
      .execute();

    await deleteUnusedModelFiles(platform);
    expect(await keysBelow("models/files")).toHaveLength(shipped.length + 3);
    await later(25 * HOUR, () => deleteUnusedModelFiles(platform));
    expect((await keysBelow("models/files")).toSorted()).toEqual(
      [...shipped, replaced.key, current.key].toSorted(),
    );
    expect(unnamed.key).toBe("models/files/unnamed");
    expect(await keysBelow("models/uploads")).toEqual([part]);
    await later(8 * 24 * HOUR, () => deleteUnusedModelFiles(platform));
    expect(await keysBelow("models/uploads")).toEqual([]);
    await run.finish();
  });
});

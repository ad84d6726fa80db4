import { evalRoutes, modelRoutes, trainingRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker } from "../../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

const rows = Array.from({ length: 20 }, (_, n) => `{"user_prompt":"${n}","label":"${n}"}\n`).join("");

withDatabaseLocation("the checkpoints of a run", (locate) => {
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
  const evaluate = (model: string) =>
    workspace.client.call(evalRoutes.submit, {
      body: { experiment_config: experiment(model), evaluation_config: { limit: 1 } },
    });
  const claim = async () => {
    const worker = createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
    const job = await worker.claim();
    if (job === null) throw new Error("no run came");
    return { job, run: worker.run(job) };
  };
  const start = async (keep: number) => {
    const { name } = await workspace.client.call(trainingRoutes.submit, {
      body: {
        experiment_config: experiment(),
        training_config: { rollout_batch_size: 4, n_samples_per_prompt: 2, total_epochs: 10 },
        advanced_config: { keep_checkpoints: keep },
      },
    });
    const { job, run } = await claim();
    const keepStep = async (step: number, reward: number | null, validation: number | null = null) => {
      await run.put(`checkpoints/${step}/adapter_model.safetensors`, `weights ${step}`);
      await run.checkpoint(step, {
        files: ["adapter_model.safetensors"],
        reward,
        validation_reward: validation,
      });
    };
    const checkpoints = async () => {
      const answer = await workspace.client.call(trainingRoutes.checkpoints, { params: { name } });
      return answer.checkpoints.map(
        (one) => [one.checkpoint_step, one.status === "removed" ? "removed" : one.marks.join(" ")] as const,
      );
    };
    const blobs = async () => {
      const keys = [];
      for await (const { key } of server.platform.blobs.list(`runs/${job.run_id}/files/checkpoints`))
        keys.push(Number(key.split("/")[4]));
      return keys.toSorted((a, b) => a - b);
    };
    return { name, run, keepStep, checkpoints, blobs };
  };

  test("are marked: the highest validation reward is the best, of equals the earlier; the latest step is the last", async () => {
    const { run, keepStep, checkpoints } = await start(0);
    await keepStep(1, null);
    expect(await checkpoints()).toEqual([[1, "last"]]);
    await keepStep(2, 0.9);
    await keepStep(3, 0.2);
    expect(await checkpoints()).toEqual([
      [1, ""],
      [2, "best"],
      [3, "last"],
    ]);
    // A validation counts more than any training reward.
    await keepStep(4, 0.5, 0.5);
    await keepStep(5, 0.6, 0.6);
    await keepStep(6, 0.6, 0.6);
    expect(await checkpoints()).toEqual([
      [1, ""],
      [2, ""],
      [3, ""],
      [4, ""],
      [5, "best"],
      [6, "last"],
    ]);
    // The same step again, after a crash, with what it measured then.
    await keepStep(6, 0.7, 0.7);
    expect((await checkpoints()).slice(-2)).toEqual([
      [5, ""],
      [6, "best last"],
    ]);
    await run.finish();
  });

  test("lose their files but for the newest and the best; the rows and what they measured stay", async () => {
    const { name, run, keepStep, checkpoints, blobs } = await start(2);
    for (const [step, reward] of [0.1, 0.8, 0.3, 0.4, 0.5].entries()) await keepStep(step + 1, reward);
    expect(await checkpoints()).toEqual([
      [1, "removed"],
      [2, "best"],
      [3, "removed"],
      [4, ""],
      [5, "last"],
    ]);
    expect(await blobs()).toEqual([2, 4, 5]);
    const model = await workspace.client.call(modelRoutes.get, { params: { name: `${name}-step-1` } });
    expect(model).toMatchObject({ reward: 0.1, files: [], files_removed_at: expect.any(String) });
    const { models } = await workspace.client.call(modelRoutes.trained, { query: {} });
    expect(models.filter((one) => one.training_run_name === name).map((one) => one.checkpoint_step)).toEqual([
      5, 4, 2,
    ]);
    await expect(evaluate(`${name}-step-1`)).rejects.toThrow(
      `the files of ${name}-step-1 were removed, as [advanced].keep_checkpoints of ${name} asks for`,
    );
    const { logs } = await workspace.client.call(trainingRoutes.logs, { params: { name }, query: {} });
    expect(logs.map((line) => line.message)).toContain(
      "keep_checkpoints: removed the files of the checkpoints of steps 3.",
    );
    await run.finish();
  });

  test("stay while an evaluation waits or runs that needs them, and are removed with the next one", async () => {
    const { name, run, keepStep, checkpoints } = await start(1);
    await keepStep(1, 0.1);
    await keepStep(2, 0.9);
    expect(await checkpoints()).toEqual([
      [1, "removed"],
      [2, "best last"],
    ]);
    await keepStep(3, 0.2);
    await evaluate(`${name}-step-3`);
    await keepStep(4, 0.3);
    expect((await checkpoints())[2]).toEqual([3, ""]);
    const evaluation = await claim();
    await keepStep(5, 0.3);
    expect(await checkpoints()).toEqual([
      [1, "removed"],
      [2, "best"],
      [3, ""],
      [4, "removed"],
      [5, "last"],
    ]);
    if (evaluation.job.model.type !== "local") throw new Error("expected files");
    const [file] = evaluation.job.model.adapter_files;
    expect(await (await evaluation.run.get(file?.url ?? "")).text()).toBe("weights 3");
    await evaluation.run.finish();
    await keepStep(6, 0.3);
    expect((await checkpoints())[2]).toEqual([3, "removed"]);
    await run.finish();
  });

  test("one that teaches another run is handed to it, and stays; a teacher that there is not is refused", async () => {
    const { name, run, keepStep, checkpoints } = await start(1);
    await keepStep(1, 0.9);
    await keepStep(2, 0.1);
    const distil = (teacher_model: string) =>
      workspace.client.call(trainingRoutes.submit, {
        body: {
          experiment_config: experiment(),
          training_config: { rollout_batch_size: 4 },
          advanced_config: { teacher_model },
        },
      });
    await expect(distil("nobody")).rejects.toMatchObject({
      details: {
        issues: [{ key: "advanced.teacher_model", message: expect.stringContaining("no model nobody") }],
      },
    });
    await expect(distil("openai/large")).rejects.toMatchObject({
      details: {
        issues: [{ key: "advanced.teacher_model", message: expect.stringContaining("no log probabilities") }],
      },
    });
    await distil(`${name}-step-2`);
    const taught = await claim();
    if (taught.job.kind !== "training" || taught.job.teacher?.type !== "local") throw new Error("no teacher");
    expect(taught.job.teacher).toMatchObject({ name: `${name}-step-2`, base_model: "osmosis/tiny-agent" });
    const [file] = taught.job.teacher.adapter_files;
    expect(await (await taught.run.get(file?.url ?? "")).text()).toBe("weights 2");
    await taught.run.finish();
    await keepStep(3, 0.2);
    await keepStep(4, 0.2);
    // What a training run learned from is needed to replay it.
    expect(await checkpoints()).toEqual([
      [1, "best"],
      [2, ""],
      [3, "removed"],
      [4, "last"],
    ]);
    await run.finish();
  });

  test("an evaluation that is submitted at the same moment gets its model, or hears that it is gone", async () => {
    const { name, run, keepStep } = await start(1);
    await keepStep(1, 0.9);
    for (let step = 2; step <= 9; step++) {
      await keepStep(step, 0.1);
      const [submitted] = await Promise.allSettled([
        evaluate(`${name}-step-${step}`),
        keepStep(step + 10, 0.1),
      ]);
      const { files } = await workspace.client.call(modelRoutes.get, {
        params: { name: `${name}-step-${step}` },
      });
      expect(submitted.status === "fulfilled").toBe(files.length === 1);
      if (submitted.status === "rejected") expect(String(submitted.reason)).toMatch(/removed/);
      else {
        const evaluation = await claim();
        await evaluation.run.finish();
      }
    }
    await run.finish();
  });
});

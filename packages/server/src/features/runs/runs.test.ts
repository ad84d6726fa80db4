import { OsmosisError, evalRoutes, modelRoutes, secretRoutes, trainingRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

const rows = (count: number) =>
  Array.from({ length: count }, (_, n) => `{"user_prompt":"What is ${n} x 2?","label":"${n * 2}"}\n`).join(
    "",
  );

const FILES = {
  "rollouts/multiply/main.ts": "export {};\n",
  "rollouts/multiply/package.json": `{"name":"multiply","description":"Multiply"}`,
};

withDatabaseLocation("runs", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    workspace = await createTestWorkspace(server, FILES);
    await workspace.upload("multiply", rows(40));
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const experiment = {
    rollout: "multiply",
    entrypoint: "main.ts",
    model_path: "osmosis/tiny-agent",
    dataset: "multiply",
  };
  const evaluation = (more: Record<string, unknown> = {}) => ({ experiment_config: experiment, ...more });
  const submitEval = (more: Record<string, unknown> = {}) =>
    workspace.client.call(evalRoutes.submit, { body: evaluation(more) });
  const submitTraining = (more: Record<string, unknown> = {}) =>
    workspace.client.call(trainingRoutes.submit, { body: evaluation(more) });
  const post = (path: string, json: unknown, headers: Record<string, string> = {}) =>
    server.json("POST", path, { json, headers: { ...workspace.headers, ...headers } });
  const worker = () => createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
  /** Claims until the run of that id comes; what lies before it is ended. */
  async function claim(id: string) {
    for (;;) {
      const one = worker();
      const job = await one.claim();
      if (job === null) throw new Error("the run did not come");
      if (job.run_id === id) return { job, run: one.run(job) };
      await one.run(job).finish("stopped");
    }
  }

  describe("submitting", () => {
    test("a run gets a name, the pushed commit and all defaults", async () => {
      const submitted = await submitEval({ evaluation_config: { limit: 7, n: 2 } });
      expect(submitted.name).toMatch(/^[a-z]+-[a-z]+-\d+$/);
      expect(submitted.status).toBe("pending");
      const detail = await workspace.client.call(evalRoutes.get, { params: { name: submitted.name } });
      expect(detail).toMatchObject({
        entrypoint: "main.ts",
        branch: "main",
        commit_sha: expect.stringMatching(/^[0-9a-f]{40}$/),
        results: null,
        model: { name: "osmosis/tiny-agent" },
        dataset: { name: "multiply" },
        rollout: { name: "multiply" },
        config: { model_path: "osmosis/tiny-agent", limit: 7, n: 2, pass_threshold: 1, temperature: 0 },
      });
    });

    test.each<[string, string, Record<string, unknown>, RegExp]>([
      [
        "an unknown key",
        "eval-runs",
        { evaluation_config: { limt: 3 } },
        /evaluation\.limt is not a known key; did you mean limit\?/,
      ],
      ["a wrong type", "eval-runs", { evaluation_config: { limit: "3" } }, /evaluation\.limit /],
      [
        "a value out of range",
        "training-runs",
        { training_config: { n_samples_per_prompt: 1 } },
        /training\.n_samples_per_prompt /,
      ],
      [
        "a branch and a commit",
        "eval-runs",
        { experiment_config: { ...experiment, branch: "main", commit_sha: "abcdef1" } },
        /experiment\.commit_sha give either branch or commit_sha/,
      ],
      [
        "an entrypoint outside",
        "eval-runs",
        { experiment_config: { ...experiment, entrypoint: "../x.ts" } },
        /experiment\.entrypoint must be a relative path inside/,
      ],
      [
        "an entrypoint that is not pushed",
        "eval-runs",
        { experiment_config: { ...experiment, entrypoint: "mian.ts" } },
        /there is no file rollouts\/multiply\/mian\.ts in the pushed commit .*commit it and push/,
      ],
      [
        "a rollout that is not pushed",
        "eval-runs",
        { experiment_config: { ...experiment, rollout: "multiplyy" } },
        /there is no folder rollouts\/multiplyy in the pushed commit .*did you mean multiply\?/,
      ],
      [
        "an unknown data set",
        "eval-runs",
        { experiment_config: { ...experiment, dataset: "multipy" } },
        /there is no data set multipy; did you mean multiply\?/,
      ],
      [
        "an unknown model",
        "training-runs",
        { experiment_config: { ...experiment, model_path: "osmosis/tiny-agnt" } },
        /there is no model osmosis\/tiny-agnt.*did you mean osmosis\/tiny-agent\?/,
      ],
      [
        "training a hosted model",
        "training-runs",
        { experiment_config: { ...experiment, model_path: "openai/gpt-5-mini" } },
        /whose weights cannot be trained; name a base model/,
      ],
      [
        "a hosted model without its key",
        "eval-runs",
        { experiment_config: { ...experiment, model_path: "openai/gpt-5-mini" } },
        /secrets\.required must name OPENAI_API_KEY/,
      ],
      [
        "no row left to train on",
        "training-runs",
        { advanced_config: { holdout_rows: 40 } },
        /advanced\.holdout_rows 40 leaves no row to train on: the data set has 40/,
      ],
      [
        "a provided secret that nobody asked for",
        "eval-runs",
        { secrets: { required: [], provided: { EXTRA: "very-secret" } } },
        /secrets\.provided\.EXTRA is not in secrets\.required/,
      ],
      [
        "a variable that is a secret, too",
        "eval-runs",
        { env_config: { KEY: "x" }, secrets: { required: ["KEY"] } },
        /env\.KEY is a required secret, too/,
      ],
    ])("%s is refused", async (_name, path, more, message) => {
      const { status, body } = await post(`/api/cli/${path}`, evaluation(more));
      expect(status).toBe(400);
      expect(body).toMatchObject({ code: "VALIDATION", error: expect.stringMatching(message) });
      expect((body as { issues: unknown[] }).issues.length).toBeGreaterThan(0);
      expect(JSON.stringify(body)).not.toContain("very-secret");
    });

    test("all faults are told at once", async () => {
      const { body } = await post(
        "/api/cli/eval-runs",
        evaluation({
          experiment_config: { ...experiment, rollout: "absent", dataset: "absent", model_path: "absent" },
        }),
      );
      expect((body as { issues: { key: string }[] }).issues.map((issue) => issue.key)).toEqual([
        "experiment.rollout",
        "experiment.dataset",
        "experiment.model_path",
      ]);
    });

    test("a data set that is not usable is refused with its fault", async () => {
      await workspace.upload("broken", rows(2));
      const { body } = await post(
        "/api/cli/eval-runs",
        evaluation({ experiment_config: { ...experiment, dataset: "broken" } }),
      );
      expect((body as { error: string }).error).toMatch(
        /the data set broken is not usable, its status is error: the file has 2 rows/,
      );
    });

    test("code that was never pushed is not found", async () => {
      const { status, body } = await post(
        "/api/cli/eval-runs",
        evaluation({ experiment_config: { ...experiment, commit_sha: "0123456789" } }),
      );
      expect(status).toBe(404);
      expect(body).toMatchObject({ code: "NOT_FOUND", error: expect.stringContaining("was never pushed") });
    });

    test("missing secrets are named, with the page where they are set", async () => {
      const { status, body } = await post(
        "/api/cli/eval-runs",
        evaluation({ secrets: { required: ["FIRST_KEY", "SECOND_KEY"] } }),
      );
      expect(status).toBe(404);
      expect(body).toMatchObject({
        error: "Secret(s) not found: FIRST_KEY, SECOND_KEY",
        code: "NOT_FOUND",
        platform_url: `${server.url}/${workspace.name}/secrets`,
      });
    });

    test("the same idempotency key makes one run, also at once, and no other request", async () => {
      const headers = { "idempotency-key": "key-1" };
      const answers = await Promise.all(
        [1, 2, 3].map(() => post("/api/cli/eval-runs", evaluation(), headers)),
      );
      expect(new Set(answers.map(({ body }) => (body as { id: string }).id)).size).toBe(1);
      const other = await post("/api/cli/eval-runs", evaluation({ evaluation_config: { n: 3 } }), headers);
      expect(other).toMatchObject({
        status: 409,
        body: { error: expect.stringContaining("with another request") },
      });
    });

    test("names are unique however many are submitted at once", async () => {
      const runs = await Promise.all(Array.from({ length: 10 }, () => submitEval()));
      expect(new Set(runs.map((run) => run.name)).size).toBe(10);
    });
  });

  describe("secrets of a run", () => {
    test("come from where they are stored, or with the run, and those are deleted at its end", async () => {
      await workspace.client.call(secretRoutes.set, {
        body: { name: "STORED", value: "from-store", scope: "workspace" },
      });
      const { id, name } = await submitEval({
        secrets: { required: ["STORED", "GIVEN"], provided: { GIVEN: "only-now" } },
      });
      const detail = await workspace.client.call(evalRoutes.get, { params: { name } });
      expect(detail.resolved_secret_scopes).toEqual({ STORED: "workspace", GIVEN: "run" });
      const kept = () =>
        server.platform.db.selectFrom("run_secrets").selectAll().where("run_id", "=", id).execute();
      expect(JSON.stringify(await kept())).not.toContain("only-now");
      const { job, run } = await claim(id);
      expect(job.secrets).toEqual({ STORED: "from-store", GIVEN: "only-now" });
      await run.finish();
      expect(await kept()).toEqual([]);
    });

    test("a secret that is deleted before the run starts ends it with its name", async () => {
      await workspace.client.call(secretRoutes.set, {
        body: { name: "SHORT_LIVED", value: "x", scope: "user" },
      });
      const { name } = await submitEval({ secrets: { required: ["SHORT_LIVED"] } });
      await workspace.client.call(secretRoutes.delete, { body: { name: "SHORT_LIVED", scope: "user" } });
      const next = await submitEval();
      await (await claim(next.id)).run.finish();
      const { eval_run } = await workspace.client.call(evalRoutes.get, { params: { name } });
      expect(eval_run).toMatchObject({
        status: "failed",
        error: expect.stringMatching(/^Secret\(s\) not found: SHORT_LIVED\. They were deleted/),
      });
    });
  });

  describe("an evaluation", () => {
    test("gets its selected rows in order, and its results are those of its rollouts so far", async () => {
      const { id, name } = await submitEval({ evaluation_config: { limit: 3, n: 2 } });
      const { job, run } = await claim(id);
      if (job.kind !== "evaluation") throw new Error("expected an evaluation");
      expect(job).toMatchObject({ attempt: 1, row_count: 3, rollout: "multiply", entrypoint: "main.ts" });
      expect((await run.rows()).map((row) => row["row_index"])).toEqual([0, 1, 2]);
      expect((await run.rows())[1]).toEqual({
        row_index: 1,
        messages: [{ role: "user", content: "What is 1 x 2?" }],
        label: "2",
        metadata: null,
      });
      await run.record(
        testRollout({ row_index: 0, sample_index: 0 }),
        testRollout({ row_index: 0, sample_index: 1, reward: 0, metrics: { turns: 2 } }),
        testRollout({ row_index: 1, sample_index: 0, outcome: "provider", reward: null, error: "503" }),
      );
      const { results } = await workspace.client.call(evalRoutes.get, { params: { name } });
      expect(results).toMatchObject({
        total_runs: 3,
        graded: 2,
        passed: 1,
        skipped: 1,
        pass_rate: 0.5,
        sampled_rows: 3,
        total_dataset_rows: 40,
        total_tokens: 45,
        temperature: 0,
        components: { turns: { mean: 1.5, n: 2 } },
      });
      expect(results?.warnings).toEqual([]);
      await run.record(
        testRollout({ row_index: 1, sample_index: 1 }),
        testRollout({ row_index: 2, sample_index: 0, model_calls: 0 }),
        testRollout({ row_index: 2, sample_index: 1 }),
      );
      await run.finish();
      const metrics = await workspace.client.call(evalRoutes.metrics, { params: { name: id } });
      expect(metrics).toMatchObject({
        eval_run_id: id,
        status: "finished",
        overview: { total_samples: 6, passed: 4, tokens_used: 90 },
      });
      expect(metrics.pass_at_k.map(({ k }) => k)).toEqual([1, 2]);
      const { eval_runs } = await workspace.client.call(evalRoutes.list, { query: {} });
      expect(eval_runs.find((one) => one.id === id)).toMatchObject({
        status: "finished",
        results: {
          passed: 4,
          warnings: [expect.stringMatching(/^In 1 of 5 graded rollouts the model answered no call/)],
        },
      });
    });

    test("its rollouts are listed by filter and page, and each opens as a conversation", async () => {
      const { id, name } = await submitEval({ evaluation_config: { limit: 10 } });
      const { run } = await claim(id);
      const records = Array.from({ length: 10 }, (_, row_index) =>
        testRollout({
          row_index,
          outcome: row_index % 2 === 0 ? "ok" : "agent",
          reward: row_index % 2 === 0 ? 1 : null,
        }),
      );
      await run.record(...records.slice(0, 4));
      await run.record(...records.slice(4));
      const list = (query: Record<string, unknown>) =>
        workspace.client.call(evalRoutes.rollouts, { params: { name }, query });
      const page = await list({ limit: 3, offset: 2 });
      expect(page.rollouts.map((rollout) => rollout.row_index)).toEqual([2, 3, 4]);
      expect(page).toMatchObject({ total_count: 10, has_more: true, next_offset: 5 });
      expect((await list({ outcome: "agent" })).total_count).toBe(5);
      expect((await list({ phase: "train" })).total_count).toBe(0);
      const detail = await workspace.client.call(evalRoutes.rollout, {
        params: { name, rollout_id: records[7]?.rollout_id ?? "" },
      });
      expect(detail).toMatchObject({
        rollout: { row_index: 7, outcome: "agent" },
        label: "4",
        metrics: { turns: 1 },
      });
      expect(detail.messages).toEqual(records[7]?.messages);
      await expect(
        workspace.client.call(evalRoutes.rollout, { params: { name, rollout_id: "absent" } }),
      ).rejects.toThrow("The run has no rollout absent.");
    });

    test("its log pages back from the end and follows from a cursor", async () => {
      const { id, name } = await submitEval();
      const { run } = await claim(id);
      await run.log(...Array.from({ length: 25 }, (_, n) => `line ${n}`));
      const page = (query: Record<string, unknown>) =>
        workspace.client.call(evalRoutes.logs, { params: { name }, query });
      const last = await page({ limit: 10 });
      expect(last.logs.at(-1)?.message).toBe("line 24");
      const before = await page({ limit: 10, cursor: last.next_cursor ?? "" });
      expect(before.logs.at(-1)?.message).toBe("line 14");
      const first = await page({ limit: 10, cursor: before.next_cursor ?? "" });
      expect(first.next_cursor).toBeNull();
      expect(first.logs[0]?.message).toMatch(/takes the run \(attempt 1\)/);
      const begin = await page({ direction: "newer", limit: 20 });
      const rest = await page({ direction: "newer", limit: 20, cursor: begin.next_cursor ?? "" });
      expect(rest.logs.map((line) => line.message)).toEqual([
        "line 19",
        "line 20",
        "line 21",
        "line 22",
        "line 23",
        "line 24",
      ]);
      const nothing = await page({ direction: "newer", cursor: rest.next_cursor ?? "" });
      expect(nothing).toEqual({ logs: [], next_cursor: rest.next_cursor });
      await run.log("one more");
      expect((await page({ direction: "newer", cursor: rest.next_cursor ?? "" })).logs).toHaveLength(1);
      await expect(page({ cursor: "x" })).rejects.toThrow("The cursor is not one of this log.");
    });

    test("of a hosted model asks for the key by its name, at the base URL that [env] sets", async () => {
      const { id } = await submitEval({
        experiment_config: { ...experiment, model_path: "openai/gpt-5-mini" },
        env_config: { OPENAI_BASE_URL: "http://127.0.0.1:1/v1" },
        secrets: { required: ["OPENAI_API_KEY"], provided: { OPENAI_API_KEY: "sk" } },
      });
      const { job, run } = await claim(id);
      expect(job.model).toEqual({
        type: "provider",
        name: "openai/gpt-5-mini",
        model: "gpt-5-mini",
        base_url: "http://127.0.0.1:1/v1",
        api_key_name: "OPENAI_API_KEY",
      });
      await run.finish();
    });
  });

  test("a version of a data set stays with the run that was submitted with it", async () => {
    const { id: datasetId } = await workspace.upload("moving", rows(5));
    const { id } = await submitEval({
      experiment_config: { ...experiment, dataset: "moving" },
      evaluation_config: { limit: 100 },
    });
    const bytes = rows(4);
    const created = await post("/api/cli/datasets", {
      file_name: "moving",
      file_size: bytes.length,
      extension: "jsonl",
      overwrite_dataset_id: datasetId,
    });
    const { upload } = created.body as { upload: { presigned_url: string } };
    await fetch(upload.presigned_url, { method: "PUT", body: bytes });
    await post(`/api/cli/datasets/${datasetId}/complete`, {});
    const { run } = await claim(id);
    expect(await run.rows()).toHaveLength(5);
    await run.finish();
  });

  describe("a training run", () => {
    test("shows its curves, and its checkpoints are models that runs can begin with", async () => {
      const { id, name } = await submitTraining({
        training_config: { rollout_batch_size: 4, n_samples_per_prompt: 2, total_epochs: 2 },
        advanced_config: { holdout_rows: 8, method: "lora", max_steps: 2 },
      });
      const { job, run } = await claim(id);
      if (job.kind !== "training") throw new Error("expected training");
      expect(job).toMatchObject({ total_steps: 2, committed_steps: 0, row_count: 40, state_files: [] });
      if (job.model.type !== "local") throw new Error("expected local");
      expect(job.model.base_files.map((file) => file.name)).toContain("config.json");
      const config = job.model.base_files.find((file) => file.name === "config.json");
      expect(config?.url).toMatch(/^\/blobs\//);
      const fetched = await run.get(config?.url ?? "");
      expect(await fetched.json()).toHaveProperty("hidden_size");

      await run.put("checkpoints/1/adapter_config.json", "{}");
      await run.put("checkpoints/1/adapter_model.safetensors", "weights");
      const files = ["adapter_config.json", "adapter_model.safetensors"];
      const checkpoint = await run.checkpoint(1, { reward: 0.5, files });
      expect(checkpoint.name).toBe(`${name}-step-1`);
      await run.commit(1, {
        metrics: { "rollout/raw_reward": 0.25, "rollout/pass_rate": 0.2, "train/loss": 1.5 },
        examples: 8,
      });
      await run.commit(2, { metrics: { "rollout/raw_reward": 0.75, "rollout/pass_rate": 0.7 }, examples: 8 });
      await run.finish();

      const { training_run } = await workspace.client.call(trainingRoutes.get, { params: { name } });
      expect(training_run).toMatchObject({
        status: "finished",
        current_step: 2,
        total_steps: 2,
        reward: 0.75,
        pass_rate: 0.7,
        examples_processed_count: 16,
      });
      const metrics = await workspace.client.call(trainingRoutes.metrics, { params: { name } });
      expect(
        metrics.metrics.map((curve) => [curve.title, curve.data_points.map((point) => point.value)]),
      ).toEqual([
        ["Training Reward", [0.25, 0.75]],
        ["Training Pass Rate", [0.2, 0.7]],
        ["Train: loss", [1.5]],
      ]);
      expect(metrics.overview).toMatchObject({
        latest_step: 2,
        metric_summaries: expect.arrayContaining([
          {
            key: "rollout/raw_reward",
            title: "Training Reward",
            initial: 0.25,
            latest: 0.75,
            delta: 0.5,
            min: 0.25,
            max: 0.75,
          },
        ]),
      });
      const { checkpoints } = await workspace.client.call(trainingRoutes.checkpoints, { params: { name } });
      expect(checkpoints).toMatchObject([
        { checkpoint_name: `${name}-step-1`, checkpoint_step: 1, status: "uploaded", reward: 0.5 },
      ]);

      const model = await workspace.client.call(modelRoutes.get, { params: { name: `${name}-step-1` } });
      expect(model).toMatchObject({
        base_model: "osmosis/tiny-agent",
        training_run_name: name,
        method: "lora",
        size_bytes: 9,
      });
      const weights = model.files.find((file) => file.name.endsWith("safetensors"));
      expect(await (await fetch(weights?.presigned_url ?? "")).text()).toBe("weights");

      const trained = await submitEval({
        experiment_config: { ...experiment, model_path: `osmosis/tiny-agent:${name}-step-1` },
      });
      const second = await claim(trained.id);
      if (second.job.model.type !== "local") throw new Error("expected local");
      expect(second.job.model.adapter_files.map((file) => file.name)).toEqual(files);
      await second.run.finish();
    });
  });

  describe("stopping", () => {
    test("a waiting run is stopped at once and never handed out", async () => {
      const { id, name } = await submitEval();
      expect((await post(`/api/cli/eval-runs/${name}/stop`, {})).body).toEqual({ id, status: "stopped" });
      expect((await post(`/api/cli/eval-runs/${name}/stop`, {})).body).toEqual({ id, status: "stopped" });
      const next = await submitEval();
      const { run } = await claim(next.id);
      await run.finish();
      const { eval_run } = await workspace.client.call(evalRoutes.get, { params: { name } });
      expect(eval_run).toMatchObject({
        status: "stopped",
        started_at: null,
        completed_at: expect.any(String),
      });
    });

    test("a running run stops when its worker has heard of it", async () => {
      const { id, name } = await submitEval();
      const { run } = await claim(id);
      expect(await run.heartbeat()).toEqual({ stop_requested: false });
      expect((await post(`/api/cli/eval-runs/${name}/stop`, {})).body).toEqual({ id, status: "stopping" });
      expect(await run.heartbeat()).toEqual({ stop_requested: true });
      await run.finish("stopped");
      const { eval_run } = await workspace.client.call(evalRoutes.get, { params: { name } });
      expect(eval_run.status).toBe("stopped");
      await expect(run.record(testRollout())).rejects.toThrow(/is stopped/);
    });
  });

  test("base models are listed with their size", async () => {
    const { models } = await workspace.client.call(modelRoutes.base, { query: {} });
    const tiny = models.find((model) => model.model_name === "osmosis/tiny-agent");
    expect(tiny?.parameters).toBeGreaterThan(100_000);
  });

  test("runs, models and logs of one workspace are not found from another", async () => {
    const { id } = await submitEval();
    const other = await createTestWorkspace(server, FILES);
    const error = await other.client
      .call(evalRoutes.get, { params: { name: id } })
      .catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(OsmosisError);
    expect(error).toMatchObject({ code: "NOT_FOUND" });
    expect((await other.client.call(evalRoutes.list, { query: {} })).eval_runs).toEqual([]);
  });
});

test("what the platform's own trainer by URL cannot do is refused at submission", async () => {
  await using server = await startTestServer({ config: { trainer: { url: "http://127.0.0.1:9" } } });
  const workspace = await createTestWorkspace(server, FILES);
  await workspace.upload("multiply", rows(40));
  const submit = (advanced_config: Record<string, unknown>) =>
    workspace.client.call(trainingRoutes.submit, {
      body: {
        experiment_config: {
          rollout: "multiply",
          entrypoint: "main.ts",
          model_path: "osmosis/tiny-agent",
          dataset: "multiply",
        },
        advanced_config,
      },
    });
  await expect(submit({ rollout_workers: 2, method: "full" })).rejects.toMatchObject({
    code: "VALIDATION",
    message: expect.stringMatching(
      /advanced\.method must be "lora" with a trainer by URL .*embedded.*1 more/,
    ),
  });
  expect((await submit({ trainer: "embedded", rollout_workers: 2, method: "full" })).status).toBe("pending");
});

import { analysisRoutes, replayRoutes, trainingRoutes, type ReplayJob } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { jsonb } from "../../database/columns.ts";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

const rows = Array.from({ length: 40 }, (_, n) => `{"user_prompt":"${n}","label":"${n}"}\n`).join("");
const lossOf = (step: number) => ({ "train/loss": step / 3, "train/tokens": 10, "rollout/raw_reward": 0.5 });
const updateOf = (step: number) => ({ "train/loss": step / 3, "train/tokens": 10 });

withDatabaseLocation("replays", (locate) => {
  let server: TestServer;
  let workspace: TestWorkspace;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
    await workspace.upload("rows", rows);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const worker = () => createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
  const train = async (advanced_config = {}) => {
    const { name } = await workspace.client.call(trainingRoutes.submit, {
      body: {
        experiment_config: {
          rollout: "multiply",
          entrypoint: "main.ts",
          model_path: "osmosis/tiny-agent",
          dataset: "rows",
        },
        training_config: { rollout_batch_size: 4, n_samples_per_prompt: 2 },
        advanced_config,
      },
    });
    const one = worker();
    const job = await one.claim();
    if (job === null) throw new Error("no run came");
    const run = one.run(job);
    const commit = async (...steps: number[]) => {
      for (const step of steps) {
        await run.put(`state/${step}/weights`, `state ${step}`);
        await run.record(testRollout({ phase: "train", step, rollout_id: `${name}-${step}` }));
        await run.commit(step, { metrics: lossOf(step), examples: 1, state_files: ["weights"] });
      }
    };
    return { name, run, commit };
  };
  const start = (name: string, body: { step?: number; set?: Record<string, unknown> } = {}) =>
    workspace.client.call(replayRoutes.start, { params: { name }, body });
  const get = (name: string, id: string) =>
    workspace.client.call(replayRoutes.get, { params: { name, replay_id: id } });
  const claim = async () => {
    const one = worker();
    const job = await one.claim(5000, "replays");
    if (job?.kind !== "replay") throw new Error("no replay came");
    return { job, run: one.run(job) };
  };
  const stateOf = async (job: ReplayJob, run: Awaited<ReturnType<typeof claim>>["run"]) =>
    (await run.get(job.state_files[0]?.url ?? "")).text();

  test("a replay begins with the newest state before its step, and is compared step by step", async () => {
    const { name, run, commit } = await train();
    await commit(1, 2, 3);
    const asked = await start(name, { step: 3 });
    expect(asked).toMatchObject({ status: "pending", step: 3, from_step: null, equal: null, steps: [] });
    // No worker that waits for runs gets it.
    expect(await worker().claim(0)).toBeNull();
    const replay = await claim();
    expect(replay.job).toMatchObject({
      run_id: asked.id,
      committed_steps: 2,
      last_step: 3,
      last_config: null,
      total_steps: 10,
      row_count: 40,
      secrets: {},
    });
    expect(await stateOf(replay.job, replay.run)).toBe("state 2");
    expect(replay.job.config.advanced.trainer).toBe("embedded");
    expect((await replay.run.stepRollouts(3)).map((one) => one["rollout_id"])).toEqual([`${name}-3`]);
    expect(await get(name, asked.id)).toMatchObject({ status: "running", from_step: 2, current_step: 2 });
    await replay.run.commit(3, { metrics: updateOf(3) });
    await replay.run.finish();
    expect(await get(name, asked.id)).toMatchObject({
      status: "finished",
      equal: true,
      current_step: 3,
      steps: [{ step: 3, recorded: updateOf(3), replayed: updateOf(3), equal: true }],
    });
    // It is no run among the others.
    const { training_runs } = await workspace.client.call(trainingRoutes.list, { query: {} });
    expect(training_runs.map((one) => one.name)).toEqual([name]);
    await run.finish();
  });

  test("a value that differs in its last bit, or is missing, makes a step unequal", async () => {
    const { name, run, commit } = await train();
    await commit(1, 2);
    const { id } = await start(name, { step: 1 });
    const replay = await claim();
    expect(replay.job).toMatchObject({ committed_steps: 0, state_files: [] });
    await replay.run.commit(1, { metrics: { ...updateOf(1), "train/loss": 1 / 3 + Number.EPSILON / 4 } });
    await replay.run.finish();
    expect(await get(name, id)).toMatchObject({ equal: false, steps: [{ step: 1, equal: false }] });

    const second = await start(name, { step: 1 });
    const again = await claim();
    await again.run.commit(1, { metrics: { "train/loss": 1 / 3 } });
    await again.run.finish();
    expect(await get(name, second.id)).toMatchObject({ equal: false });
    await run.finish();
  });

  test("the state that a replay began with stays until the replay has ended, while the run goes on", async () => {
    const { name, run, commit } = await train();
    await commit(1, 2);
    const { id } = await start(name, { step: 2 });
    const replay = await claim();
    await commit(3, 4, 5);
    expect(await stateOf(replay.job, replay.run)).toBe("state 1");
    await replay.run.commit(2, { metrics: updateOf(2) });
    await replay.run.finish();
    expect(await get(name, id)).toMatchObject({ equal: true, from_step: 1 });
    const key = new URL(replay.job.state_files[0]?.url ?? "", server.url).pathname.slice("/blobs/".length);
    expect(await server.platform.blobs.stat(key)).toBeUndefined();
    await run.finish();
  });

  test("a replay whose worker is lost is begun again where it began", async () => {
    const { name, run, commit } = await train();
    await commit(1, 2, 3, 4);
    const { id } = await start(name, { step: 4 });
    const lost = await claim();
    await lost.run.commit(4, { metrics: updateOf(4) });
    server.advance(server.platform.config.leaseSeconds * 700);
    await run.heartbeat();
    server.advance(server.platform.config.leaseSeconds * 400);
    const next = await claim();
    expect(next.job).toMatchObject({ run_id: id, attempt: 2, committed_steps: 3, last_step: 4 });
    await expect(lost.run.commit(4, { metrics: updateOf(4) })).rejects.toThrow("another worker");
    await next.run.commit(4, { metrics: updateOf(4) });
    await next.run.finish();
    expect(await get(name, id)).toMatchObject({ status: "finished", equal: true });
    await run.finish();
  });

  test("with other settings the last step is repeated, not compared; the ones before it are", async () => {
    const { name, run, commit } = await train();
    await commit(1, 2);
    const set = { "advanced.loss": "gspo", "training.lr": 0.5 };
    const { id } = await start(name, { step: 2, set });
    // The same question is the same replay while it is not answered.
    expect((await start(name, { step: 2, set: { "training.lr": 0.5, "advanced.loss": "gspo" } })).id).toBe(
      id,
    );
    expect((await start(name, { step: 2 })).id).not.toBe(id);
    const replay = await claim();
    expect(replay.job.config.advanced).toMatchObject({ loss: "ppo", clip_low: 0.2 });
    expect(replay.job.last_config).toMatchObject({
      training: { lr: 0.5 },
      advanced: { loss: "gspo", clip_low: 3e-4, clip_high: 4e-4 },
    });
    await replay.run.commit(2, { metrics: { "train/loss": 9 } });
    await replay.run.finish();
    expect(await get(name, id)).toMatchObject({
      status: "finished",
      equal: null,
      set,
      steps: [{ equal: null }],
    });
    await run.finish();
    const other = await claim();
    await other.run.finish();
  });

  test("what cannot be replayed is refused with what to do", async () => {
    const { name, run, commit } = await train();
    await expect(start(name)).rejects.toThrow("has no committed step yet");
    await commit(1);
    await expect(start(name, { step: 2 })).rejects.toThrow("its last committed one is 1");
    for (const place of [
      "advanced.seed",
      "constructor.name",
      "toString.length",
      "training.lr.x",
      "training",
      "",
    ]) {
      await expect(start(name, { set: { [place]: 1 } })).rejects.toThrow(
        `${place} cannot be set for a replay`,
      );
    }
    await expect(start(name, { set: { "advanced.loss": "best" } })).rejects.toThrow("advanced.loss");
    await expect(start("nobody")).rejects.toThrow("There is no training run nobody");
    await expect(get(name, "nobody")).rejects.toThrow("has no replay nobody");
    await run.finish();
  });

  test("what a trainer by URL trained is not replayed: it need not repeat itself", async () => {
    const chosen = await train({ trainer: "http://trainer.example.com" });
    await chosen.commit(1);
    await expect(start(chosen.name)).rejects.toThrow("was trained at http://trainer.example.com");
    await chosen.run.finish();

    // The platform's own choice is in no configuration, but in what the run kept.
    const given = await train();
    await given.run.put("state/1/remote-weights.json", "{}");
    await given.run.commit(1, { state_files: ["remote-weights.json"] });
    await expect(start(given.name)).rejects.toThrow("was trained by a trainer by URL");
    await given.run.finish();
  });

  test("a run that was accepted before a rule of today is examined, replayed with other settings, and gone on with", async () => {
    const { name, run, commit } = await train();
    await commit(1);
    const { db } = server.platform;
    const { config } = await db
      .selectFrom("runs")
      .select("config")
      .where("name", "=", name)
      .executeTakeFirstOrThrow();
    if (!("training" in config)) throw new Error("it is a training run");
    const old = {
      ...config,
      advanced: {
        ...config.advanced,
        wandb_entity: "team",
        mlflow_url: "http://user:password@127.0.0.1:9",
        reward_range: [-1, 1] as [number, number],
        advantage: "max_rl" as const,
        correction_cap: 1e12,
        early_stop_reward: 1e12,
      },
    };
    await db
      .updateTable("runs")
      .set({ config: jsonb<typeof config>(old) })
      .where("name", "=", name)
      .execute();
    const { latest_step } = await workspace.client.call(analysisRoutes.doctor, { params: { name } });
    expect(latest_step).toBe(1);
    await start(name, { set: { "training.lr": 0.5 } });
    const replay = await claim();
    expect(replay.job).toMatchObject({
      config: { advanced: { advantage: "max_rl", wandb_entity: "team", correction_cap: 1e12 } },
      last_config: { training: { lr: 0.5 } },
    });
    await replay.run.finish();
    await expect(start(name, { set: { "training.lr": -1 } })).rejects.toThrow("training.lr");
    await expect(start(name, { set: { "advanced.correction_cap": 2e12 } })).rejects.toThrow("Too big");
    await expect(start(name, { set: { "advanced.weight_decay": 1e12 } })).rejects.toThrow("Too big");
    server.advance(server.platform.config.leaseSeconds * 1000 + 1);
    const next = worker();
    const job = await next.claim(20_000);
    expect(job).toMatchObject({
      run_name: name,
      attempt: 2,
      config: { advanced: { reward_range: [-1, 1] } },
    });
    if (job !== null) await next.run(job).finish();
    await expect(run.heartbeat()).rejects.toMatchObject({ code: "CONFLICT" });
  });

  test("whoever asks for the same replay at the same moment gets one and the same", async () => {
    const { name, run, commit } = await train();
    await commit(1);
    const asked = await Promise.all(Array.from({ length: 6 }, () => start(name)));
    expect(new Set(asked.map(({ id }) => id)).size).toBe(1);
    await workspace.client.call(replayRoutes.stop, {
      params: { name, replay_id: asked[0]?.id ?? "" },
      body: {},
    });
    await run.finish();
  });

  test("a replay that nobody waits for any more can be stopped", async () => {
    const { name, run, commit } = await train();
    await commit(1);
    const { id } = await start(name);
    const stopped = await workspace.client.call(replayRoutes.stop, {
      params: { name, replay_id: id },
      body: {},
    });
    expect(stopped).toEqual({ id, status: "stopped" });
    expect(await worker().claim(0, "replays")).toBeNull();
    expect(await get(name, id)).toMatchObject({ status: "stopped", equal: null });
    await run.finish();
  });
});

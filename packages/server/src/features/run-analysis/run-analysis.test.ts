import {
  EXPORT_ROWS_HEADER,
  RUN_LEASE_HEADER,
  RolloutRecord,
  analysisRoutes,
  committedStepsRoute,
  exportStreams,
  fillPath,
  trainingRoutes,
} from "@osmosis/protocol";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { startTestServer, type TestServer } from "../../testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";
import { getRun } from "../runs/run-rows.ts";
import { csvLine } from "./csv.ts";
import { runHistory } from "./run-history.ts";

let server: TestServer;
let workspace: TestWorkspace;

beforeAll(async () => {
  server = await startTestServer();
  workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
  const rows = Array.from(
    { length: 40 },
    (_, row) => `{"user_prompt":"${row} times 2?","label":"${row * 2}"}\n`,
  );
  await workspace.upload("rows", rows.join(""));
}, 60_000);

afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
});

/** A run in the hands of a worker. */
async function trainingRun(advanced: object = {}) {
  const { name } = await workspace.client.call(trainingRoutes.submit, {
    body: {
      experiment_config: {
        rollout: "multiply",
        entrypoint: "main.ts",
        model_path: "osmosis/tiny-agent",
        dataset: "rows",
      },
      training_config: { rollout_batch_size: 8, n_samples_per_prompt: 8, total_epochs: 100 },
      advanced_config: { holdout_rows: 4, ...advanced },
    },
  });
  const worker = createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
  const job = await worker.claim(20_000);
  if (job?.run_name !== name) throw new Error("the worker got another run, or none");
  return { name, job, run: worker.run(job) };
}

const doctor = (name: string) => workspace.client.call(analysisRoutes.doctor, { params: { name } });

describe("the run doctor", () => {
  test("a run that is alive and learns has no finding, and one that fails names its rollouts", async () => {
    const { name, run } = await trainingRun();
    expect(await doctor(name)).toMatchObject({ name, status: "running", latest_step: 0, findings: [] });
    const failed = testRollout({
      phase: "train",
      step: 1,
      outcome: "agent",
      reward: null,
      error: "Error: boom",
    });
    await run.record(failed, ...passing(1, 3));
    await run.commit(1, { metrics: { "rollout/outcome/ok": 50, "rollout/outcome/agent": 14 } });
    const { findings } = await doctor(name);
    expect(findings).toMatchObject([
      {
        severity: "alarm",
        rule: "errored_rollouts",
        steps: { first: 1, last: 1 },
        rollouts: [{ id: failed.rollout_id, step: 1, outcome: "agent" }],
      },
    ]);
    await run.finish("failed", "Enough.");
    expect((await doctor(name)).findings.map(({ rule }) => rule)).toEqual(["run_failed", "errored_rollouts"]);
  });

  test("a policy that is stuck is told with the rows that it never passes", async () => {
    const { name, run } = await trainingRun();
    const stuck = {
      "rollout/group/all_bad": 0.2,
      "rollout/group/all_good": 0.7,
      "rollout/group/all_same": 0.9,
      "rollout/pass_rate": 0.8,
      "train/entropy_loss": 0.01,
    };
    const tried = (step: number, row_index: number, rewards: readonly (number | null)[]) =>
      rewards.map((reward) =>
        testRollout({ phase: "train", step, row_index, reward, outcome: reward === null ? "agent" : "ok" }),
      );
    const last = tried(3, 7, [0.5, 0]);
    await run.record(...tried(1, 7, [0]), ...tried(1, 8, [0, 1]), ...tried(2, 9, [0, null]), ...last);
    for (const step of [1, 2, 3]) await run.commit(step, { metrics: stuck });
    const { findings } = await doctor(name);
    expect(findings).toMatchObject([
      { rule: "stuck_rows", evidence: expect.stringMatching(/: 7 \(3 rollouts\), 9 \(1 rollout\)\.$/) },
    ]);
    expect(findings[0]?.rollouts).toHaveLength(2);
    expect(last.map(({ rollout_id: id }) => id)).toContain(findings[0]?.rollouts[0]?.id);
    await run.finish();
  });

  test("a run whose worker falls silent says since when", async () => {
    const { name, run } = await trainingRun();
    await run.heartbeat();
    const { leaseSeconds } = server.platform.config;
    server.advance((leaseSeconds - 1) * 1000);
    expect((await doctor(name)).findings).toEqual([]);
    server.advance((leaseSeconds + 2) * 1000);
    expect((await doctor(name)).findings).toMatchObject([{ rule: "no_heartbeat" }]);
    await workspace.client.call(trainingRoutes.stop, { params: { name }, body: {} });
    expect((await doctor(name)).findings).toEqual([]);
  });
});

describe("comparing runs", () => {
  test("curves, settings and validations of two runs are lined up", async () => {
    const a = await trainingRun({ seed: 1 });
    await a.run.record(...validation(2, [1, 0, 0, 0]));
    await a.run.commit(1, { metrics: { "rollout/raw_reward": 0.25 } });
    await a.run.commit(2, { metrics: { "rollout/raw_reward": 0.5, "eval/validation/reward": 0.25 } });
    await a.run.finish();
    const b = await trainingRun({ seed: 1, loss: "cispo" });
    await b.run.record(...validation(1, [1, 1, 1, 0]));
    await b.run.commit(1, { metrics: { "rollout/raw_reward": 0.75, "eval/validation/reward": 0.75 } });
    await b.run.finish();
    const compared = await workspace.client.call(analysisRoutes.compare, {
      query: { runs: `${a.name},${b.name}` },
    });
    expect(compared.runs.map(({ name, current_step }) => [name, current_step])).toEqual([
      [a.name, 2],
      [b.name, 1],
    ]);
    expect(compared.differences).toEqual([{ key: "loss", values: ["ppo", "cispo"] }]);
    expect(compared.curves[0]).toEqual({
      key: "rollout/raw_reward",
      points: [
        [
          { step: 1, value: 0.25 },
          { step: 2, value: 0.5 },
        ],
        [{ step: 1, value: 0.75 }],
      ],
      summaries: [
        { points: 2, first: 0.25, last: 0.5, least: 0.25, most: 0.5, average: 0.375 },
        { points: 1, first: 0.75, last: 0.75, least: 0.75, most: 0.75, average: 0.75 },
      ],
    });
    expect(compared.paired).toMatchObject([
      {
        a: a.name,
        b: b.name,
        a_step: 2,
        b_step: 1,
        rows: 4,
        only_a_passes: 0,
        only_b_passes: 2,
        reward: { value: 0.5, n: 4 },
      },
    ]);
    expect(compared.notes).toEqual([]);
    const itself = await server.json(
      "GET",
      `${analysisRoutes.compare.path}?runs=${a.name},${a.name}`,
      workspace,
    );
    expect(itself.status).toBe(400);
    const alone = await server.json("GET", `${analysisRoutes.compare.path}?runs=${a.name}`, workspace);
    expect(alone.body).toMatchObject({ error: expect.stringContaining("1 runs cannot be compared") });
    const missing = await server.json(
      "GET",
      `${analysisRoutes.compare.path}?runs=${a.name},nobody`,
      workspace,
    );
    expect(missing.status).toBe(404);
  });

  test("a run without validation says why its rows are not paired", async () => {
    const a = await trainingRun();
    await a.run.finish();
    const b = await trainingRun();
    await b.run.finish();
    const c = await trainingRun();
    await c.run.finish();
    const { paired, notes } = await workspace.client.call(analysisRoutes.compare, {
      query: { runs: `${a.name},${b.name},${c.name}` },
    });
    expect(paired).toEqual([]);
    expect(notes).toEqual([`${a.name} has no validation, so held-out rows cannot be paired.`]);
  });
});

describe("exports", () => {
  const fetchExport = async (name: string, query: string) =>
    await server.request("GET", `${fillPath(exportStreams.training, { name })}?${query}`, {
      headers: workspace.headers,
    });

  test("every rollout is exported, over pages and blobs, in the order of recording", async () => {
    const { name, run } = await trainingRun();
    const recorded = Array.from({ length: 1203 }, (_, index) =>
      testRollout({
        phase: "train",
        step: 1,
        row_index: index,
        error: index === 7 ? '=HYPERLINK("http://a")' : null,
      }),
    );
    recorded[8] = testRollout({ phase: "train", step: 1, row_index: 8, error: 'שלום, "世界"\n😀' });
    for (let start = 0; start < recorded.length; start += 401) {
      await run.record(...recorded.slice(start, start + 401));
    }
    const jsonl = await fetchExport(name, "what=rollouts");
    expect(jsonl.headers.get(EXPORT_ROWS_HEADER)).toBe("1203");
    const lines = (await jsonl.text()).trimEnd().split("\n");
    expect(lines.map((line) => RolloutRecord.parse(JSON.parse(line)))).toEqual(recorded);

    const csv = await (await fetchExport(name, "what=rollouts&format=csv")).text();
    expect(csv).toContain(`,"'=HYPERLINK(""http://a"")",`);
    expect(csv).toContain(',"שלום, ""世界""\n😀",');
    expect(csv.split("\n")).toHaveLength(1203 + 1 + 1 + 1);
    expect(csv.startsWith("rollout_id,phase,step,row_index,sample_index,outcome,reward,error,")).toBe(true);
    await run.finish();
  });

  test("an export whose blob is gone breaks off, so that nobody takes it for whole", async () => {
    const { name, run } = await trainingRun();
    await run.record(testRollout({ phase: "train", step: 1 }));
    await run.record(testRollout({ phase: "train", step: 1 }));
    const { body_key: key } = await server.platform.db
      .selectFrom("run_rollouts")
      .innerJoin("runs", "runs.id", "run_rollouts.run_id")
      .select("body_key")
      .where("runs.name", "=", name)
      .orderBy("number", "desc")
      .executeTakeFirstOrThrow();
    await server.platform.blobs.delete(key);
    // The HTTP server itself says that the stream failed.
    using said = vi.spyOn(console, "error").mockReturnValue();
    const answer = await fetchExport(name, "what=rollouts");
    await expect(answer.text()).rejects.toThrow("terminated");
    expect(String(said.mock.calls[0])).toContain("is gone");
    await run.finish();
  });

  test("metrics are exported with a column for each that some step has", async () => {
    const { name, run } = await trainingRun();
    await run.commit(1, { metrics: { "train/loss": -0.5 }, examples: 64 });
    await run.commit(2, { metrics: { "train/loss": 0.25, "eval/validation/reward": 1 }, examples: 64 });
    const csv = (await (await fetchExport(name, "format=csv")).text()).split("\n");
    expect(csv[0]).toBe("step,committed_at,examples,eval/validation/reward,train/loss");
    expect(csv[1]).toMatch(/^1,[^,]+,64,,-0.5$/);
    expect(csv[2]).toMatch(/^2,[^,]+,64,1,0.25$/);
    const jsonl = (await (await fetchExport(name, "format=jsonl")).text()).trimEnd().split("\n");
    expect(jsonl.map((line) => JSON.parse(line))).toMatchObject([
      { step: 1, examples: 64, metrics: { "train/loss": -0.5 } },
      { step: 2, metrics: { "eval/validation/reward": 1 } },
    ]);
    await run.finish();
  });

  test("only members of the workspace export, and an evaluation has no steps", async () => {
    const path = fillPath(exportStreams.training, { name: "nobody" });
    expect((await server.request("GET", path, { token: null })).status).toBe(401);
    expect((await server.json("GET", path, { headers: workspace.headers })).status).toBe(404);
    expect((await server.request("GET", path)).status).toBe(400);
  });
});

describe("committed steps for a worker", () => {
  test("the holder of the lease gets those after a step, nobody else any", async () => {
    const { name, run, job } = await trainingRun();
    for (let step = 1; step <= 3; step++) await run.commit(step, { metrics: { "train/loss": step } });
    const ask = async (lease: string) =>
      await server.json("GET", `${fillPath(committedStepsRoute.path, { run_id: job.run_id })}?after=1`, {
        token: server.platform.workerSecret,
        headers: { [RUN_LEASE_HEADER]: lease },
      });
    expect(await ask(job.lease_token)).toMatchObject({
      status: 200,
      body: {
        steps: [
          { step: 2, metrics: { "train/loss": 2 } },
          { step: 3, metrics: { "train/loss": 3 } },
        ],
      },
    });
    expect((await ask("another")).status).toBe(409);
    await run.finish();
    expect((await ask(job.lease_token)).status).toBe(409);
    // The same rows by a link of the browser, which names the workspace in its path.
    const file = fillPath(exportStreams.trainingFile, { workspace: workspace.name, name });
    const answer = await server.request("GET", file);
    expect((await answer.text()).trimEnd().split("\n")).toHaveLength(3);
    expect(answer.headers.get("content-disposition")).toBe(`attachment; filename="${name}-metrics.jsonl"`);
    const foreign = fillPath(exportStreams.trainingFile, { workspace: "another", name });
    expect((await server.request("GET", foreign)).status).toBe(404);
  });

  test("the doctor of a long run reads its beginning, its end and its validations", async () => {
    const { name, run } = await trainingRun();
    for (let step = 1; step <= 240; step++) {
      const validated = step === 20 ? { "eval/validation/pass_rate": 0.5 } : {};
      await run.commit(step, { metrics: { "rollout/raw_reward": step, ...validated } });
    }
    const row = await getRun(server.platform.db, await access(), { kind: "training", nameOrId: name });
    const { steps } = await runHistory(server.platform.db, row, { now: new Date(), leaseSeconds: 30 });
    expect(steps.map(({ step }) => step)).toEqual([
      ...Array.from({ length: 10 }, (_, index) => index + 1),
      20,
      ...Array.from({ length: 200 }, (_, index) => index + 41),
    ]);
    expect((await doctor(name)).latest_step).toBe(240);
    await run.finish();
  });

  const access = async () =>
    await server.platform.workspaces.accessByName(server.platform.owner.id, workspace.name);
});

test("a cell that a spreadsheet would calculate is text, and a number is a number", () => {
  expect(csvLine(["=1+1", "+a", "-a", "@a", "\ta", "a=1", -1.5, null, ""])).toBe(
    "'=1+1,'+a,'-a,'@a,'\ta,a=1,-1.5,,\n",
  );
});

function passing(step: number, count: number) {
  return Array.from({ length: count }, (_, row_index) => testRollout({ phase: "train", step, row_index }));
}

function validation(step: number, rewards: readonly number[]) {
  return rewards.map((reward, row_index) => testRollout({ phase: "validation", step, row_index, reward }));
}

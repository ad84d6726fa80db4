import { AtifTrajectory, evalRoutes, runFileRoutes } from "@osmosis/protocol";
import { sql } from "kysely";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestServer, type TestServer } from "../../testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../../testing-workspace.ts";

let server: TestServer;
let workspace: TestWorkspace;
let name: string;

const own = {
  schema_version: "ATIF-v1.7",
  session_id: "own",
  agent: { name: "toy", version: "1" },
  steps: [],
};

beforeAll(async () => {
  server = await startTestServer();
  workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
  const rows = Array.from(
    { length: 20 },
    (_, row) => `{"user_prompt":"${row} times 2?","label":"${row * 2}"}\n`,
  );
  await workspace.upload("rows", rows.join(""));
  const submitted = await workspace.client.call(evalRoutes.submit, {
    body: {
      experiment_config: {
        rollout: "multiply",
        entrypoint: "main.ts",
        model_path: "osmosis/tiny-agent",
        dataset: "rows",
      },
      evaluation_config: { limit: 12, n: 2 },
      secrets: { required: [] },
    },
  });
  name = submitted.name;
  const worker = createTestWorker({ url: server.url, workerSecret: server.platform.workerSecret });
  const job = await worker.claim(20_000);
  if (job?.run_name !== name) throw new Error("the worker got another run, or none");
  const run = worker.run(job);
  await run.log("good morning");
  for (let row_index = 0; row_index < 12; row_index++) {
    await run.record(
      ...[0, 1].map((sample_index) =>
        testRollout({
          row_index,
          sample_index,
          reward: sample_index,
          trajectory: row_index === 3 ? own : null,
        }),
      ),
    );
  }
  await run.finish();
}, 60_000);
afterAll(() => server?.[Symbol.asyncDispose]());

/** What is at the URL of each file of a manifest, as long as the manifest says. */
async function download(query: Record<string, string>): Promise<Map<string, string>> {
  const path = `/api/cli/eval-runs/${name}/samples/manifest?${new URLSearchParams(query)}`;
  const { body } = await server.json("GET", path, { headers: workspace.headers });
  const { files, totals } = runFileRoutes.manifest.response.parse(body);
  expect(totals).toEqual({ files: files.length, bytes: files.reduce((sum, { size }) => sum + size, 0) });
  const items = files.map(({ path, token }) => ({ path, token }));
  const urls = await workspace.client.call(runFileRoutes.urls, { params: { name }, body: { items } });
  const found = new Map<string, string>();
  for (const [index, { path, token, url }] of urls.items.entries()) {
    expect({ path, token }).toEqual(items[index]);
    const bytes = Buffer.from(await (await fetch(url)).arrayBuffer());
    expect(bytes.length, path).toBe(files[index]?.size);
    found.set(path, bytes.toString());
  }
  return found;
}

test("an evaluation is downloaded as metrics, log, summary, and an ATIF document a rollout", async () => {
  const files = await download({ types: "metrics,trajectories,artifacts,logs" });
  expect(files.size).toBe(3 + 24);
  expect(JSON.parse(files.get("metrics.json") ?? "")).toMatchObject({
    eval_run: { name, status: "finished", model_name: "osmosis/tiny-agent" },
    summary: { graded: 24, passed: 12, reward_stats: { mean: 0.5 } },
  });
  expect(files.get("logs.txt")).toMatch(/^\S+ info \[test\] good morning\n/m);
  const lines = (files.get("summary.jsonl") ?? "").trim().split("\n");
  expect(lines).toHaveLength(24);
  expect(JSON.parse(lines[7] ?? "")).toMatchObject({
    row_index: 3,
    run_index: 1,
    reward: 1,
    trajectory: "trajectories/row_3_run_1.json",
  });
  expect(JSON.parse(files.get("trajectories/row_3_run_1.json") ?? "")).toEqual(own);
  const made = AtifTrajectory.parse(JSON.parse(files.get("trajectories/row_4_run_1.json") ?? ""));
  expect(made).toMatchObject({
    agent: { name: "multiply" },
    steps: [{ message: "What is 2 x 2?" }, { message: "4" }],
    extra: { osmosis: { reward: 1, label: "4" } },
  });
});

test("a log of any length is downloaded whole, and in order", async () => {
  const { db } = server.platform;
  const { id } = await db.selectFrom("runs").select("id").where("name", "=", name).executeTakeFirstOrThrow();
  await sql`
    insert into log_lines (subject_id, timestamp, level, step, message)
    select ${id}, now(), 'info', 'rollout', 'line ' || n from generate_series(1, 12000) n`.execute(db);
  const lines = ((await download({ types: "logs" })).get("logs.txt") ?? "").trimEnd().split("\n");
  const told = lines.flatMap((line) => /\[rollout\] line (\d+)$/.exec(line)?.[1] ?? []);
  expect(told).toEqual(Array.from({ length: 12_000 }, (_, index) => String(index + 1)));
  expect(lines.filter((line) => line.includes("good morning"))).toHaveLength(1);
  const kept = [];
  for await (const { key } of server.platform.blobs.list(`runs/${id}/downloads`)) kept.push(key);
  expect(kept.filter((key) => !/\/([0-9a-f]{64}|trajectories\/[^/]+)$/.test(key))).toEqual([]);
});

test("only the rows and kinds that were asked for are there, and what is no range is refused", async () => {
  const files = await download({ types: "trajectories", rows: "0,3-4,11-99" });
  expect([...files.keys()].filter((path) => path.startsWith("trajectories/"))).toEqual(
    [0, 3, 4, 11].flatMap((row) => [0, 1].map((sample) => `trajectories/row_${row}_run_${sample}.json`)),
  );
  expect([...(await download({ types: "metrics" })).keys()]).toEqual(["metrics.json"]);
  const ask = (query: string) =>
    server.json("GET", `/api/cli/eval-runs/${name}/samples/manifest?${query}`, {
      headers: workspace.headers,
    });
  const beyond = `types=trajectories&rows=${"9".repeat(25)}`;
  for (const query of [beyond, "types=metrics&rows=a", "types=metrics&rows=1-", "types=everything", ""])
    expect(await ask(query), query).toMatchObject({ status: 400, body: { code: "VALIDATION" } });
});

test("no URL is given for what is not a file of the run", async () => {
  const { rollouts } = await workspace.client.call(evalRoutes.rollouts, { params: { name }, query: {} });
  const token = rollouts[0]?.id ?? "";
  for (const item of [
    { path: "trajectories/row_99_run_0.json", token },
    { path: "../../../secrets", token },
    { path: "metrics.json", token: "0".repeat(64) },
    { path: "metrics.json", token: "other" },
  ]) {
    const answer = await server.json("POST", `/api/cli/eval-runs/${name}/samples/download-urls`, {
      headers: workspace.headers,
      json: { items: [item] },
    });
    expect(answer, item.path).toMatchObject({ status: 404, body: { code: "NOT_FOUND" } });
  }
});

import { RUN_LEASE_HEADER, evalRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { withDatabaseLocation } from "../../database/testing.ts";
import { createTestWorker, testRollout } from "../../testing-worker.ts";
import { createTestWorkspace } from "../../testing-workspace.ts";
import { startTestServer, type TestServer } from "../../testing.ts";

withDatabaseLocation("what a worker sends and cannot be kept", (locate) => {
  let server: TestServer;
  let post: (path: string, json: object) => Promise<{ status: number; body: unknown }>;
  beforeAll(async () => {
    server = await startTestServer({ database: locate() });
    const { workerSecret } = server.platform;
    const workspace = await createTestWorkspace(server, { "rollouts/multiply/main.ts": "export {};\n" });
    await workspace.upload("rows", '{"user_prompt":"1","label":"1"}\n'.repeat(4));
    const experiment_config = {
      rollout: "multiply",
      entrypoint: "main.ts",
      model_path: "osmosis/tiny-agent",
      dataset: "rows",
    };
    await workspace.client.call(evalRoutes.submit, { body: { experiment_config } });
    const job = await createTestWorker({ url: server.url, workerSecret }).claim();
    const headers = { [RUN_LEASE_HEADER]: job?.lease_token ?? "" };
    post = (path, json) =>
      server.json("POST", `/api/worker/runs/${job?.run_id}${path}`, { token: workerSecret, headers, json });
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  const line = { timestamp: "2030-01-31T12:00:00.000Z", level: "info", step: "", message: "m" };

  test.each([
    "yesterday",
    "+275760-09-13T00:00:00.000Z",
    "-271821-04-20T00:00:00.000Z",
    "0000-01-01T00:00:00.000Z",
  ])("a log line at %s is refused as no time", async (timestamp) => {
    expect(await post("/logs", { entries: [line, { ...line, timestamp }] })).toMatchObject({
      status: 400,
      body: { code: "VALIDATION", error: expect.stringContaining(timestamp) },
    });
  });

  test("as many log lines as a statement takes are kept, and more are refused", async () => {
    const lines = (count: number) => ({ entries: Array.from({ length: count }, () => line) });
    expect(await post("/logs", lines(10_000))).toMatchObject({ status: 200 });
    expect(await post("/logs", lines(10_001))).toMatchObject({ status: 400, body: { field: "entries" } });
  });

  test.each([
    ["step", { step: -1 }],
    ["row_index", { row_index: -5 }],
    ["prompt_tokens", { prompt_tokens: -1 }],
    ["sequences.0", { sequences: [{ tokens: [1], mask: [1, 1], logprobs: [] }] }],
  ])("a rollout whose %s cannot be is refused", async (place, more) => {
    const record = { ...testRollout(), ...more };
    expect(await post("/rollouts", { rollouts: [testRollout(), record] })).toMatchObject({
      status: 400,
      body: { field: `rollouts.1.${place}` },
    });
  });

  test("more names of files than a statement takes are refused", async () => {
    const names = Array.from({ length: 70_000 }, (_, index) => `f${index}`);
    const step = { step: 1, metrics: {}, examples: 0, state_files: names };
    expect(await post("/steps", step)).toMatchObject({ status: 400, body: { field: "state_files" } });
  });
});

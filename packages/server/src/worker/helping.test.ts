import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "@osmosis/controller";
import { createEmbeddedService } from "@osmosis/engine";
import { RUN_LEASE_HEADER, createClient, evalRoutes, sharingRoutes, type Share } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestWorker } from "../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../testing-workspace.ts";
import { startTestServer, type TestServer } from "../testing.ts";
import { openFileCache } from "./file-cache.ts";
import { openHelping } from "./helping.ts";
import { openPlatformLink } from "./platform-link.ts";

/** A helper whose rollout server ends at once, and prints the run's secret before. */

const SECRET = "correct-horse-battery";
const RETRY_MS = 1000;

let server: TestServer;
let workspace: TestWorkspace;
let dataFolder: string;
beforeAll(async () => {
  server = await startTestServer();
  const code = `console.log("the password is", process.env.PASSWORD); process.exit(3);\n`;
  workspace = await createTestWorkspace(server, { "rollouts/leaky/main.ts": code });
  await workspace.upload("rows", `{"user_prompt":"2 x 2","label":"4"}\n`.repeat(4));
  dataFolder = await mkdtemp(join(tmpdir(), "osmosis-helping-"));
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  await rm(dataFolder, { recursive: true, force: true });
});

test("a worker that fails to help a run leaves it alone for a while, longer each time, and tells why without a secret", async () => {
  const { platform, url } = server;
  await workspace.client.call(evalRoutes.submit, {
    body: {
      experiment_config: {
        rollout: "leaky",
        entrypoint: "main.ts",
        model_path: "openai/any",
        dataset: "rows",
      },
      evaluation_config: { limit: 1 },
      advanced_config: { rollout_workers: 2 },
      secrets: {
        required: ["PASSWORD", "OPENAI_API_KEY"],
        provided: { PASSWORD: SECRET, OPENAI_API_KEY: "another-secret" },
      },
    },
  });
  const holder = createTestWorker({ url, workerSecret: platform.workerSecret });
  const job = await holder.claim();
  if (job === null) throw new Error("no run came");
  const authorization = `Bearer ${platform.workerSecret}`;
  await createClient({ baseUrl: url, fetch, headers: () => ({ authorization }) }).call(
    sharingRoutes.publish,
    {
      params: { run_id: job.run_id },
      headers: { [RUN_LEASE_HEADER]: job.lease_token },
      body: {
        shares: [
          {
            share_id: randomUUID(),
            phase: "eval",
            step: 0,
            tasks: [{ rollout_id: "one", row_index: 0, options: {} }],
          },
        ],
      },
    },
  );

  const link = openPlatformLink({ url, token: platform.workerSecret, fetch });
  const signal = new AbortController().signal;
  const said: string[] = [];
  let now = Date.now();
  await using helping = openHelping(
    {
      dataFolder,
      files: openFileCache(join(dataFolder, "files"), link),
      openService: async () => createEmbeddedService({ threads: 1 }),
      environment: process.env,
      fetch,
      clock: systemClock,
    },
    { now: () => new Date(now), say: (text) => said.push(text), signal, retryMs: RETRY_MS },
  );
  const help = async (): Promise<Share> => {
    const share = await link.claimShare(
      { worker: "anna", instance: "anna-1" },
      { waitMs: 0, exceptRuns: helping.exceptRuns(), signal },
    );
    if (share === null) throw new Error("no share came");
    await helping.work(share, link.share(share.share_id, share.lease_token));
    return share;
  };

  expect(helping.exceptRuns()).toEqual([]);
  const first = await help();
  expect(helping.exceptRuns()).toEqual([job.run_id]);
  now += RETRY_MS;
  expect(helping.exceptRuns()).toEqual([]);
  // It was given back, so it is there again.
  expect((await help()).share_id).toBe(first.share_id);
  now += RETRY_MS;
  expect(helping.exceptRuns()).toEqual([job.run_id]);
  now += RETRY_MS;
  expect(helping.exceptRuns()).toEqual([]);

  const lines = await platform.db
    .selectFrom("log_lines")
    .select("message")
    .where("subject_id", "=", job.run_id)
    .execute();
  const told = lines.map(({ message }) => message);
  expect(told.filter((message) => message.includes("cannot help with this run"))).toEqual([
    expect.stringContaining("the password is [REDACTED]"),
    expect.stringContaining("the password is [REDACTED]"),
  ]);
  expect(said.join()).toContain("exited with code 3");
  expect([...told, ...said].join()).not.toContain(SECRET);
  await holder.run(job).finish();
});

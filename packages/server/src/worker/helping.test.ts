import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "@osmosis/controller";
import { ModelLost, createEmbeddedService, type TrainingService } from "@osmosis/engine";
import {
  OsmosisError,
  RUN_LEASE_HEADER,
  createClient,
  evalRoutes,
  sharingRoutes,
  type Share,
} from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTestWorker } from "../testing-worker.ts";
import { createTestWorkspace, type TestWorkspace } from "../testing-workspace.ts";
import { startTestServer, type TestServer } from "../testing.ts";
import { openFileCache } from "./file-cache.ts";
import { openHelping } from "./helping.ts";
import { openPlatformLink } from "./platform-link.ts";

const SECRET = "correct-horse-battery";
const RETRY_MS = 1000;

/** A rollout server that asks the model once for each rollout, and tells that it got no answer. */
const ASKS = `
import { createServer } from "node:http";
const { _OSMOSIS_ROLLOUT_PORT: port, _OSMOSIS_ROLLOUT_INSTANCE_ID: instance_id } = process.env;
const asked = new Map();
createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const answer = (status, body) => response.writeHead(status).end(JSON.stringify(body));
  if (request.url === "/health") return answer(200, { status: "ok", instance_id });
  if (request.url === "/rollout/cancel") return answer(200, {});
  if (request.url === "/rollout") {
    const { rollout_id, chat_completions_url: url, llm_api_key: key, initial_messages: messages } = JSON.parse(Buffer.concat(chunks));
    const headers = { authorization: "Bearer " + key };
    asked.set(rollout_id, fetch(url + "/chat/completions", { method: "POST", headers, body: JSON.stringify({ messages }) }));
    const lease = { polling_lease_token: "t", result_wait_timeout_sec: 30, polling_lease_timeout_sec: 60 };
    return answer(202, { rollout_id, status: "running", ...lease });
  }
  await asked.get(decodeURIComponent(request.url.split("/")[2]));
  answer(200, { status: "failure", err_message: "no answer", err_category: "http_error" });
}).listen(Number(port), "127.0.0.1");
`;

let server: TestServer;
let workspace: TestWorkspace;
let dataFolder: string;
beforeAll(async () => {
  server = await startTestServer();
  // It ends at once, and prints the run's secret before.
  const leaky = `console.log("the password is", process.env.PASSWORD); process.exit(3);\n`;
  workspace = await createTestWorkspace(server, {
    "rollouts/leaky/main.ts": leaky,
    "rollouts/asks/main.mjs": ASKS,
  });
  await workspace.upload("rows", `{"user_prompt":"2 x 2","label":"4"}\n`.repeat(4));
  dataFolder = await mkdtemp(join(tmpdir(), "osmosis-helping-"));
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  await rm(dataFolder, { recursive: true, force: true });
});

/** A share of the only run that waits, for a worker that helps with it. */
async function offer(options: object) {
  const { platform, url } = server;
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
            tasks: [{ rollout_id: "one", row_index: 0, options: { ...options } }],
          },
        ],
      },
    },
  );
  return { job, end: () => holder.run(job).finish() };
}

/** A worker that helps; `help` lets it work on the share that is there. */
function helper(openService: () => Promise<TrainingService>) {
  const { platform, url } = server;
  const link = openPlatformLink({ url, token: platform.workerSecret, fetch });
  const signal = new AbortController().signal;
  const said: string[] = [];
  const clock = { now: Date.now() };
  const helping = openHelping(
    {
      dataFolder,
      files: openFileCache(join(dataFolder, "files"), link),
      openService,
      environment: process.env,
      fetch,
      clock: systemClock,
    },
    { now: () => new Date(clock.now), say: (text) => said.push(text), signal, retryMs: RETRY_MS },
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
  return { helping, help, said, clock };
}

test("a worker that fails to help a run leaves it alone for a while, longer each time, and tells why without a secret", async () => {
  const { help, said, clock, ...anna } = helper(async () => createEmbeddedService({ threads: 1 }));
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
  const { job, end } = await offer({});
  await using helping = anna.helping;
  expect(helping.exceptRuns()).toEqual([]);
  const first = await help();
  expect(helping.exceptRuns()).toEqual([job.run_id]);
  clock.now += RETRY_MS;
  expect(helping.exceptRuns()).toEqual([]);
  // It was given back, so it is there again.
  expect((await help()).share_id).toBe(first.share_id);
  clock.now += RETRY_MS;
  expect(helping.exceptRuns()).toEqual([job.run_id]);
  clock.now += RETRY_MS;
  expect(helping.exceptRuns()).toEqual([]);

  const lines = await server.platform.db
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
  await end();
});

test("a helper whose model is lost gives its share back, and blames no rollout for it", async () => {
  const lost = () => Promise.reject(new ModelLost(new OsmosisError("NOT_FOUND", "Session not found")));
  const sampler = {
    contextLength: 512,
    sample: lost,
    endConversation: () => {},
    [Symbol.asyncDispose]: async () => {},
  };
  const trainer = {
    openSampler: async () => sampler,
    [Symbol.asyncDispose]: async () => {},
  } as Partial<TrainingService> as TrainingService; // what an evaluation needs of one
  await workspace.client.call(evalRoutes.submit, {
    body: {
      experiment_config: {
        rollout: "asks",
        entrypoint: "main.mjs",
        model_path: "osmosis/tiny-agent",
        dataset: "rows",
      },
      evaluation_config: { limit: 1 },
      advanced_config: { rollout_workers: 2 },
      secrets: { required: [], provided: {} },
    },
  });
  const { job, end } = await offer({
    identity: { runId: "run", phase: "eval", step: 0, sampleIndex: 0 },
    seed: 1,
    sampling: { temperature: 0, topP: 1, maxTokens: 5, wins: "request" },
    timeouts: { agentSeconds: 60, graderSeconds: 5 },
    grade: true,
  });
  const { helping, help, said } = helper(async () => trainer);
  await using _ = helping;
  await help();
  expect(said.join()).toContain("The trainer has lost the model");
  expect(helping.exceptRuns()).toEqual([job.run_id]);
  const rollouts = await server.platform.db
    .selectFrom("run_rollouts")
    .select("outcome")
    .where("run_id", "=", job.run_id)
    .execute();
  expect(rollouts).toEqual([]);
  await end();
});

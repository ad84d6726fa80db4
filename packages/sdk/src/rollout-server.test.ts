import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { AtifTrajectory, RolloutAdmission, RolloutResultReply, RolloutServerHealth } from "@osmosis/protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  AgentWorkflow,
  type AgentWorkflowContext,
  createRolloutServer,
  Grader,
  type GraderContext,
  type ListeningServer,
  LocalBackend,
  type LocalBackendOptions,
} from "./index.ts";
import type { RolloutServerOptions } from "./rollout-server.ts";

const conversation = [
  { role: "user", content: "What is 6 times 7?" },
  { role: "assistant", content: "42" },
];

/** Each rollout waits for its gate, which opens by id. */
const gates = new Map<string, PromiseWithResolvers<void>>();
class Gated extends AgentWorkflow {
  async run(ctx: AgentWorkflowContext) {
    const gate = Promise.withResolvers<void>();
    gates.set(ctx.rolloutId, gate);
    ctx.signal.addEventListener("abort", () => gate.reject(ctx.signal.reason));
    const note = ctx.metadata?.["write"];
    if (typeof note === "string") await writeFile(join(ctx.artifactsDir ?? "", "note.txt"), note);
    if (ctx.metadata?.["wait"] !== undefined) await gate.promise;
    return {
      messages: [...conversation, { role: "tool", content: "x", score: Number.NaN }],
      metrics: { calls: 1 },
    };
  }
}

class Label extends Grader {
  grade(ctx: GraderContext) {
    if (ctx.label === "remove") ctx.removeSample();
    if (ctx.label === "throw") throw new Error("no such label");
    ctx.setReward(ctx.label === "42" ? 1 : 0);
  }
}

const cleanups: (() => Promise<void>)[] = [];
let root = "";

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "osmosis-sdk-"));
  gates.clear();
});

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
  await rm(root, { recursive: true, force: true });
});

async function serve(
  options: Partial<RolloutServerOptions> & {
    backendOptions?: Partial<LocalBackendOptions<undefined, undefined>>;
  } = {},
): Promise<ListeningServer> {
  const backend = new LocalBackend({
    workflow: Gated,
    grader: Label,
    graceMs: 50,
    log: () => {},
    ...options.backendOptions,
  });
  const { config, backendOptions: _, ...rest } = options;
  const settings = {
    host: "127.0.0.1",
    port: 0,
    serverToken: null,
    instanceId: null,
    artifactRoot: root,
    ...config,
  };
  const server = await createRolloutServer({ backend, log: () => {}, config: settings, ...rest }).listen();
  cleanups.push(() => server.close({ drainMs: 0 }));
  return server;
}

async function send(
  server: ListeningServer,
  path: string,
  init: { body?: unknown; headers?: Record<string, string> } = {},
) {
  const response = await fetch(server.url + path, {
    headers: { "content-type": "application/json", ...init.headers },
    ...(init.body === undefined
      ? {}
      : { method: "POST", body: typeof init.body === "string" ? init.body : JSON.stringify(init.body) }),
  });
  return {
    status: response.status,
    headers: response.headers,
    body: JSON.parse(await response.text()) as unknown,
  };
}

function request(fields: Record<string, unknown> = {}) {
  return {
    initial_messages: [{ role: "user", content: "What is 6 times 7?" }],
    chat_completions_url: "http://127.0.0.1:9/v1/",
    label: "42",
    ...fields,
  };
}

async function admit(
  server: ListeningServer,
  fields: Record<string, unknown> = {},
): Promise<RolloutAdmission> {
  const { status, body } = await send(server, "/rollout", { body: request(fields) });
  expect(status).toBe(202);
  return RolloutAdmission.parse(body);
}

async function poll(server: ListeningServer, admission: RolloutAdmission): Promise<RolloutResultReply> {
  const { status, body } = await send(server, `/rollout/${admission.rollout_id}/result`, {
    headers: { "X-Osmosis-Rollout-Lease": admission.polling_lease_token },
  });
  expect(status).toBe(200);
  return RolloutResultReply.parse(body);
}

describe("the lease-polling form", () => {
  test("admits, grades and hands the result to whoever holds the lease", async () => {
    const server = await serve();
    const admission = await admit(server, { rollout_id: "r-1", unknown_field: 1 });
    expect(admission).toEqual({
      rollout_id: "r-1",
      status: "queued",
      polling_lease_token: expect.any(String),
      result_wait_timeout_sec: 30,
      polling_lease_timeout_sec: 120,
    });
    expect(await poll(server, admission)).toEqual({
      rollout_id: "r-1",
      status: "success",
      sample: {
        messages: [...conversation, { role: "tool", content: "x", score: null }],
        label: "42",
        reward: 1,
        remove_sample: false,
        metrics: { calls: 1 },
        extra_fields: {},
      },
      err_message: null,
      err_category: null,
      err_phase: null,
    });
  });

  test("a result can be read again, and its status and reward by anybody", async () => {
    const server = await serve();
    const admission = await admit(server);
    expect(await poll(server, admission)).toEqual(await poll(server, admission));
    const { body } = await send(server, `/rollout/${admission.rollout_id}/status`);
    expect(body).toMatchObject({ status: "success", reward: 1, err_message: null });
  });

  test("a poll ends with the status alone when the rollout takes longer", async () => {
    const server = await serve({ times: { resultWaitMs: 20, leaseMs: 5000 } });
    const admission = await admit(server, { metadata: { wait: 1 } });
    expect(await poll(server, admission)).toMatchObject({ status: "running", sample: null });
    gates.get(admission.rollout_id)?.resolve();
    await vi.waitFor(async () => expect((await poll(server, admission)).status).toBe("success"));
  });

  test("without polls the lease expires and the rollout is cancelled", async () => {
    const server = await serve({ times: { resultWaitMs: 10, leaseMs: 60 } });
    const admission = await admit(server, { metadata: { wait: 1 } });
    await vi.waitFor(async () => {
      const { body } = await send(server, `/rollout/${admission.rollout_id}/status`);
      expect(body).toMatchObject({ status: "cancelled", err_category: "lease_expired" });
    });
    expect(await poll(server, admission)).toMatchObject({ status: "cancelled", sample: null });
  });

  test("polls keep the lease", async () => {
    const server = await serve({ times: { resultWaitMs: 100, leaseMs: 400 } });
    const admission = await admit(server, { metadata: { wait: 1 } });
    for (let i = 0; i < 6; i += 1) expect((await poll(server, admission)).status).toBe("running");
    gates.get(admission.rollout_id)?.resolve();
    expect((await poll(server, admission)).status).toBe("success");
  });

  test("a result that was polled is forgotten sooner than one that was not", async () => {
    const server = await serve({ times: { polledRetentionMs: 20 } });
    const [polled, unpolled] = [await admit(server), await admit(server)];
    await poll(server, polled);
    await vi.waitFor(async () => {
      const { body } = await send(server, `/rollout/${polled.rollout_id}/status`);
      expect(body).toMatchObject({ status: "unknown" });
    });
    expect((await poll(server, unpolled)).status).toBe("success");
  });

  test("a result is forgotten after a while", async () => {
    const server = await serve({ times: { retentionMs: 20 } });
    const admission = await admit(server);
    await vi.waitFor(async () => {
      const { status } = await send(server, `/rollout/${admission.rollout_id}/result`);
      expect(status).toBe(404);
    });
  });

  test("a wrong lease is refused, an unknown rollout is not found", async () => {
    const server = await serve();
    const admission = await admit(server);
    expect((await send(server, `/rollout/${admission.rollout_id}/result`)).status).toBe(403);
    expect((await send(server, "/rollout/nobody/result")).status).toBe(404);
    expect((await send(server, "/rollout/nobody/status")).body).toMatchObject({
      status: "unknown",
      reward: null,
    });
  });

  test("a failing grader shows its phase, keeps the sample and gives no reward", async () => {
    const server = await serve();
    const reply = await poll(server, await admit(server, { label: "throw" }));
    expect(reply).toMatchObject({
      status: "failure",
      err_phase: "grader",
      err_category: "agent_error",
      err_message: "Label.grade threw no such label",
      sample: { reward: null, label: "throw" },
    });
  });

  test("a removed sample has no reward on the wire", async () => {
    const server = await serve();
    const reply = await poll(server, await admit(server, { label: "remove" }));
    expect(reply).toMatchObject({ status: "success", sample: { remove_sample: true, reward: null } });
  });

  test("grade false leaves the grader out", async () => {
    const server = await serve();
    const reply = await poll(server, await admit(server, { label: "throw", grade: false }));
    expect(reply).toMatchObject({ status: "success", sample: { reward: null } });
  });

  test("trajectory and artifacts are on disk before the result can be read", async () => {
    const server = await serve();
    const admission = await admit(server, { metadata: { write: "kept" }, extra_fields: { row: 3 } });
    await poll(server, admission);
    const folder = join(root, admission.rollout_id);
    expect(await readFile(join(folder, "artifacts", "note.txt"), "utf8")).toBe("kept");
    const trajectory = AtifTrajectory.parse(
      JSON.parse(await readFile(join(folder, "trajectory.json"), "utf8")),
    );
    expect(trajectory.extra).toMatchObject({
      osmosis: { reward: 1, request_extra_fields: { row: 3 }, request_metadata: { write: "kept" } },
    });
  });

  test("a root that cannot be written costs neither rollout nor reward", async () => {
    const file = join(root, "file");
    await writeFile(file, "");
    const log: string[] = [];
    const server = await serve({ config: { artifactRoot: file }, log: (text) => log.push(text) });
    expect(await poll(server, await admit(server))).toMatchObject({
      status: "success",
      sample: { reward: 1 },
    });
    expect(log[0]).toMatch(/The artifacts folder .* cannot be made/);
  });
});

describe("admission", () => {
  test("of an id that is known is a conflict, finished or not", async () => {
    const server = await serve();
    const admission = await admit(server, { rollout_id: "twice" });
    expect((await send(server, "/rollout", { body: request({ rollout_id: "twice" }) })).status).toBe(409);
    await poll(server, admission);
    expect((await send(server, "/rollout", { body: request({ rollout_id: "twice" }) })).status).toBe(409);
  });

  test("beyond capacity is refused with the time to come again", async () => {
    const server = await serve({ backendOptions: { concurrency: 1, maxQueued: 0 } });
    const admission = await admit(server, { metadata: { wait: 1 } });
    await vi.waitFor(async () => expect((await poll0(server)).concurrency?.running).toBe(1));
    const { status, headers } = await send(server, "/rollout", { body: request() });
    expect([status, headers.get("retry-after")]).toEqual([429, "5"]);
    gates.get(admission.rollout_id)?.resolve();
  });

  test.each([
    ["no JSON", "{", ["body"]],
    ["a missing field", { chat_completions_url: "http://x" }, ["body", "initial_messages"]],
    ["an id with a slash", request({ rollout_id: "a/b" }), ["body", "rollout_id"]],
    ["an empty key", request({ llm_api_key: "" }), ["body", "llm_api_key"]],
    [
      "an infinite timeout",
      JSON.stringify(request({ agent_timeout_sec: 0 })).replace('_sec":0', '_sec":1e999'),
      ["body", "agent_timeout_sec"],
    ],
  ])("of %s is refused with the place", async (_name, body, loc) => {
    const server = await serve();
    const reply = await send(server, "/rollout", { body });
    expect(reply.status).toBe(422);
    expect(reply.body).toMatchObject({ detail: [{ loc }] });
  });
});

async function poll0(server: ListeningServer): Promise<RolloutServerHealth> {
  return RolloutServerHealth.parse((await send(server, "/health")).body);
}

describe("cancellation", () => {
  test("by ids, by prefix and of all says what it did", async () => {
    const server = await serve({ backendOptions: { concurrency: 2 } });
    const ids = ["a-1", "a-2", "b-1", "b-2"];
    const admissions = await Promise.all(
      ids.map((id) => admit(server, { rollout_id: id, metadata: { wait: 1 } })),
    );
    await vi.waitFor(() => expect(gates.size).toBe(2));

    const byIds = await send(server, "/rollout/cancel", { body: { ids: ["a-1", "nobody"] } });
    expect(byIds.body).toEqual({ dispositions: { "a-1": "cancelled_running", nobody: "not_found" } });
    const byPrefix = await send(server, "/rollout/cancel", { body: { prefix: "b-" } });
    expect(Object.keys((byPrefix.body as { dispositions: object }).dispositions)).toEqual(["b-1", "b-2"]);
    await send(server, "/rollout/cancel", { body: { all: true } });
    for (const admission of admissions) expect((await poll(server, admission)).status).toBe("cancelled");
    expect((await poll0(server)).concurrency).toMatchObject({ running: 0, queued: 0 });
  });

  test("a cancelled rollout stays cancelled", async () => {
    const server = await serve();
    const admission = await admit(server, { metadata: { wait: 1 } });
    await vi.waitFor(() => expect(gates.size).toBe(1));
    await send(server, "/rollout/cancel", { body: { ids: [admission.rollout_id] } });
    expect((await poll(server, admission)).status).toBe("cancelled");
    gates.get(admission.rollout_id)?.resolve();
    await sleep(0);
    expect((await poll(server, admission)).status).toBe("cancelled");
  });

  test("wants exactly one selector", async () => {
    const server = await serve();
    for (const body of [{}, { ids: [], all: true }, { all: false }]) {
      expect((await send(server, "/rollout/cancel", { body })).status).toBe(422);
    }
  });
});

describe("the server", () => {
  test("tells who it is", async () => {
    const server = await serve({ config: { instanceId: "i-7" } });
    expect((await send(server, "/health")).body).toEqual({
      status: "ok",
      backend: "local",
      workflow: "Gated",
      grader: "Label",
      concurrency: { max_concurrent: 128, queued: 0, running: 0 },
      instance_id: "i-7",
      protocol_version: "0.3",
      capabilities: ["lease_polling", "callbacks", "status", "cancel"],
    });
  });

  test("with a token, only health is open to others", async () => {
    const server = await serve({ config: { serverToken: "s3cret" } });
    expect((await send(server, "/health")).status).toBe(200);
    expect((await send(server, "/rollout", { body: request() })).status).toBe(401);
    const headers = { authorization: "Bearer s3cret" };
    expect((await send(server, "/rollout", { body: request(), headers })).status).toBe(202);
  });

  test("does not answer web pages", async () => {
    const server = await serve();
    const headers = { origin: "https://example.com" };
    expect((await send(server, "/rollout", { body: request(), headers })).status).toBe(403);
  });

  test("a port that is taken is an error with a remedy", async () => {
    const server = await serve();
    await expect(serve({ config: { port: server.port } })).rejects.toMatchObject({
      code: "CONFLICT",
      message: `Port ${server.port} on 127.0.0.1 is taken.`,
      hint: expect.stringContaining("_OSMOSIS_ROLLOUT_PORT"),
    });
  });

  test("closing lets rollouts finish, refuses others, and answers open polls", async () => {
    const server = await serve();
    const admission = await admit(server, { metadata: { wait: 1 } });
    await vi.waitFor(() => expect(gates.size).toBe(1));
    const open = poll(server, admission);
    const closed = server.close({ drainMs: 10_000 });
    await vi.waitFor(async () => expect((await poll0(server)).status).toBe("draining"));
    expect((await send(server, "/rollout", { body: request() })).status).toBe(503);
    gates.get(admission.rollout_id)?.resolve();
    expect((await open).status).toBe("success");
    await closed;
    await expect(fetch(`${server.url}/health`)).rejects.toThrow();
  });

  test("closing cancels what does not finish in time", async () => {
    const server = await serve();
    const admission = await admit(server, { metadata: { wait: 1 } });
    await vi.waitFor(() => expect(gates.size).toBe(1));
    const open = poll(server, admission);
    await server.close({ drainMs: 10 });
    expect(await open).toMatchObject({
      status: "cancelled",
      err_message: "The rollout server is shutting down.",
    });
  });

  test("keeps its folder per rollout", async () => {
    const server = await serve();
    const admission = await admit(server);
    await poll(server, admission);
    expect((await stat(join(root, admission.rollout_id, "artifacts"))).isDirectory()).toBe(true);
  });
});

import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CompletionCallback, GraderCallback } from "@osmosis/protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import {
  AgentWorkflow,
  type AgentWorkflowContext,
  createRolloutServer,
  Grader,
  type GraderContext,
  type ListeningServer,
  LocalBackend,
} from "./index.ts";

class Talk extends AgentWorkflow {
  run(ctx: AgentWorkflowContext) {
    if (ctx.metadata?.["fail"] !== undefined) throw new Error("boom");
    return [...ctx.prompt, { role: "assistant", content: "42" }];
  }
}

class Label extends Grader {
  grade(ctx: GraderContext) {
    ctx.setReward(ctx.label === "42" ? 1 : 0);
  }
}

type Received = { path: string; headers: IncomingHttpHeaders; body: unknown };
type Reply = { status: number; headers?: Record<string, string>; body?: unknown };

/** A controller that records its callbacks; `reply` decides what it says to the n-th post of a path. */
let received: Received[] = [];
let reply: (path: string, n: number) => Reply = () => ({ status: 200, body: { ok: true } });
let controller: Server;
let controllerUrl = "";
let server: ListeningServer;
let root = "";
let log: string[] = [];

beforeEach(async () => {
  received = [];
  log = [];
  reply = () => ({ status: 200, body: { ok: true } });
  root = await mkdtemp(join(tmpdir(), "osmosis-sdk-"));
  controller = createServer((request, response) => {
    let text = "";
    request.on("data", (chunk: Buffer) => (text += chunk.toString()));
    request.on("end", () => {
      const path = request.url ?? "";
      received.push({ path, headers: request.headers, body: JSON.parse(text) });
      const n = received.filter((one) => one.path === path).length;
      const { status, headers = {}, body = {} } = reply(path, n);
      response.writeHead(status, { "content-type": "application/json", ...headers });
      response.end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => controller.listen(0, "127.0.0.1", resolve));
  const address = controller.address();
  controllerUrl = `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
  server = await createRolloutServer({
    backend: new LocalBackend({ workflow: Talk, grader: Label, log: () => {} }),
    config: { host: "127.0.0.1", port: 0, serverToken: null, artifactRoot: root },
    random: () => 0,
    log: (text) => log.push(text),
  }).listen();
});

afterEach(async () => {
  await server.close({ drainMs: 0 });
  controller.closeAllConnections();
  await new Promise((resolve) => controller.close(resolve));
  await rm(root, { recursive: true, force: true });
});

async function start(fields: Record<string, unknown> = {}) {
  const response = await fetch(`${server.url}/rollout`, {
    method: "POST",
    body: JSON.stringify({
      initial_messages: [{ role: "user", content: "6 * 7?" }],
      chat_completions_url: "http://127.0.0.1:9",
      completion_callback_url: `${controllerUrl}/completion`,
      grader_callback_url: `${controllerUrl}/grader`,
      controller_api_key: "controller-key",
      rollout_id: "r",
      label: "42",
      ...fields,
    }),
  });
  return [response.status, await response.json()];
}

const paths = () => received.map((one) => one.path);
const arrived = (count: number) =>
  vi.waitFor(() => expect(received).toHaveLength(count), { timeout: 20_000 });

describe("the callback form", () => {
  test("posts the end of the workflow, then the reward, with the controller's key", async () => {
    expect(await start()).toEqual([202, {}]);
    await arrived(2);
    expect(paths()).toEqual(["/completion", "/grader"]);
    expect(received[0]?.headers.authorization).toBe("Bearer controller-key");
    expect(received[0]?.body).toEqual({
      status: "success",
      rollout_id: "r",
      extra_fields: null,
      err_message: null,
      err_category: null,
      err_phase: null,
    });
    expect(received[1]?.body).toEqual({
      status: "success",
      rollout_id: "r",
      sample: {
        messages: [
          { role: "user", content: "6 * 7?" },
          { role: "assistant", content: "42" },
        ],
        label: "42",
        reward: 1,
        remove_sample: false,
        metrics: {},
        extra_fields: {},
      },
      err_message: null,
      err_category: null,
      err_phase: null,
    });
    expect(CompletionCallback.safeParse(received[0]?.body).success).toBe(true);
    expect(GraderCallback.safeParse(received[1]?.body).success).toBe(true);
  });

  test("a failed workflow shows its phase and category in both callbacks", async () => {
    await start({ metadata: { fail: 1 } });
    await arrived(2);
    for (const { body } of received) {
      expect(body).toMatchObject({
        status: "failure",
        err_phase: "workflow",
        err_category: "agent_error",
        err_message: "Talk.run threw boom",
      });
    }
    expect(received[1]?.body).toMatchObject({ sample: null });
  });

  test("without a grader URL nothing is graded and one callback comes", async () => {
    await start({ grader_callback_url: null });
    await arrived(1);
    await vi.waitFor(async () => expect(await status()).toMatchObject({ status: "success", reward: null }));
    expect(paths()).toEqual(["/completion"]);
  });

  test("a refused completion does not cost the reward", async () => {
    reply = (path) => (path === "/completion" ? { status: 404 } : { status: 200 });
    await start();
    await arrived(2);
    expect(received[1]?.body).toMatchObject({ status: "success", sample: { reward: 1 } });
    expect(log.join("\n")).toMatch(/\/completion was not delivered: HTTP 404/);
  });

  test("a callback is repeated when the controller is busy, after the time that it asks for", async () => {
    reply = (_path, n) => (n === 1 ? { status: 503, headers: { "retry-after": "0.01" } } : { status: 200 });
    await start();
    await arrived(4);
    expect(paths()).toEqual(["/completion", "/completion", "/grader", "/grader"]);
  });

  test("what the acknowledgement reports goes into the trajectory", async () => {
    const call = { prompt_tokens: 5, completion_tokens: 3 };
    reply = (path) => ({
      status: 200,
      body:
        path === "/completion"
          ? { ok: true, trajectory: { model_name: "tiny", samples: { any: { llm_call_metrics: [call] } } } }
          : { ok: true },
    });
    await start();
    await vi.waitFor(async () => {
      const trajectory: unknown = JSON.parse(await readFile(join(root, "r", "trajectory.json"), "utf8"));
      expect(trajectory).toMatchObject({
        agent: { model_name: "tiny" },
        final_metrics: { total_prompt_tokens: 5, total_completion_tokens: 3, total_steps: 2 },
      });
    });
  });

  test("the result of a rollout with callbacks cannot be polled", async () => {
    await start();
    await arrived(2);
    expect((await fetch(`${server.url}/rollout/r/result`)).status).toBe(403);
  });
});

async function status(): Promise<unknown> {
  return (await fetch(`${server.url}/rollout/r/status`)).json();
}

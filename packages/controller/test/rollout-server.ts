import { LEASE_HEADER, RolloutCancelRequest, RolloutRequest } from "@osmosis/protocol";
import { Hono } from "hono";
import { serveApp } from "./http-server.ts";
import type { TestServer } from "./http-server.ts";

export type AgentContext = {
  readonly request: RolloutRequest;
  readonly signal: AbortSignal;
  /** One call of the chat endpoint; throws the answer's text when it is not 2xx. */
  readonly chat: (body: Record<string, unknown>) => Promise<ChatMessageLike>;
};

export type ChatMessageLike = { role: string; content: string | null; tool_calls?: { id: string }[] };

/** What an agent and its grader make of a rollout: the fields of a final reply. */
export type AgentEnd = {
  readonly status?: "success" | "failure" | "cancelled";
  readonly sample?: Record<string, unknown> | null;
  readonly err_message?: string;
  readonly err_category?: string;
  readonly err_phase?: string;
};

export type RolloutServerOptions = {
  /** Throwing means a failure of the workflow. */
  readonly agent?: (context: AgentContext) => Promise<AgentEnd> | AgentEnd;
  /** Speaks the callback form: demands its URLs, knows no results. */
  readonly form?: "lease" | "callback" | "callback-undeclared";
  /** Answers an admission before everything else; undefined lets it through. */
  readonly gate?: (request: RolloutRequest) => Response | undefined;
  /** Answers a poll before everything else. */
  readonly pollGate?: (id: string) => Response | undefined;
  readonly bearer?: string;
};

export type TestRolloutServer = TestServer & {
  readonly requests: RolloutRequest[];
  readonly cancelled: string[];
  /** Rollouts that run now, and the most that ever did. */
  readonly load: { now: number; peak: number };
};

type Entry = { token: string; end: Promise<AgentEnd>; abort: AbortController };

/** A rollout server of a few lines that holds its callers to the wire: every other request is refused with 4xx. */
export async function rolloutServer(options: RolloutServerOptions): Promise<TestRolloutServer> {
  const { agent = () => ({ sample: { messages: [], reward: 1 } }), form = "lease" } = options;
  const entries = new Map<string, Entry>();
  const requests: RolloutRequest[] = [];
  const cancelled: string[] = [];
  const load = { now: 0, peak: 0 };
  const app = new Hono();

  app.use(async (c, next) => {
    const given = c.req.header("authorization");
    if (options.bearer !== undefined && given !== `Bearer ${options.bearer}`)
      return c.json({ detail: "no" }, 401);
    if (c.req.method === "POST" && c.req.header("content-type") !== "application/json")
      return c.json({}, 415);
    await next();
    return undefined;
  });

  app.get("/health", (c) => c.json({ status: "ok" }));

  app.post("/rollout", async (c) => {
    const request = RolloutRequest.parse(await c.req.json());
    const id = request.rollout_id ?? "";
    const gated = options.gate?.(request);
    if (gated !== undefined) return gated;
    if (form === "callback" && request.completion_callback_url == null) {
      return c.json({ detail: [{ type: "missing", loc: ["body", "completion_callback_url"] }] }, 422);
    }
    if (entries.has(id)) return c.json({ detail: "duplicate id" }, 409);
    requests.push(request);
    const abort = new AbortController();
    const end = execute(request, abort.signal);
    entries.set(id, { token: `lease-${id}`, end, abort });
    if (form !== "lease") {
      if (request.completion_callback_url != null) void end.then((done) => callBack(request, done));
      return c.json({}, 202);
    }
    return c.json(
      {
        rollout_id: id,
        status: "queued",
        polling_lease_token: `lease-${id}`,
        result_wait_timeout_sec: 0.2,
        polling_lease_timeout_sec: 60,
      },
      202,
    );
  });

  async function execute(request: RolloutRequest, signal: AbortSignal): Promise<AgentEnd> {
    load.now += 1;
    load.peak = Math.max(load.peak, load.now);
    try {
      return await agent({ request, signal, chat: (body) => chat(request, body, signal) });
    } catch (error) {
      if (signal.aborted) return { status: "cancelled", err_message: "cancelled" };
      return {
        status: "failure",
        err_message: String(error),
        err_category: "agent_error",
        err_phase: "workflow",
      };
    } finally {
      load.now -= 1;
    }
  }

  app.get("/rollout/:id/result", async (c) => {
    const id = c.req.param("id");
    const gated = options.pollGate?.(id);
    if (gated !== undefined) return gated;
    const entry = entries.get(id);
    if (entry === undefined || form !== "lease") return c.json({ detail: "unknown" }, 404);
    if (c.req.header(LEASE_HEADER) !== entry.token) return c.json({ detail: "wrong lease" }, 403);
    const held = new Promise<"held">((resolve) => setTimeout(() => resolve("held"), 200));
    const end = await Promise.race([entry.end, held]);
    return c.json(end === "held" ? { rollout_id: id, status: "running" } : replyOf(id, end));
  });

  app.post("/rollout/cancel", async (c) => {
    const { ids } = RolloutCancelRequest.parse(await c.req.json());
    for (const id of ids ?? []) {
      cancelled.push(id);
      entries.get(id)?.abort.abort(new Error("cancelled"));
    }
    return c.json({ dispositions: {} });
  });

  return { ...(await serveApp(app)), requests, cancelled, load };
}

function replyOf(id: string, end: AgentEnd) {
  const {
    status = "success",
    sample = null,
    err_message = null,
    err_category = null,
    err_phase = null,
  } = end;
  return { rollout_id: id, status, sample, err_message, err_category, err_phase };
}

async function callBack(request: RolloutRequest, end: AgentEnd): Promise<void> {
  const id = request.rollout_id ?? "";
  const { sample, ...completion } = replyOf(id, end);
  const post = async (url: string, body: unknown) => {
    // A test that has seen enough takes the controller away.
    const response = await fetch(url, {
      method: "POST",
      headers: { authorization: `Bearer ${request.controller_api_key}` },
      body: JSON.stringify(body),
    }).catch(() => undefined);
    if (response !== undefined && response.status !== 200)
      throw new Error(`callback answered ${response.status}`);
  };
  const graderFails = end.err_phase === "grader";
  await post(
    request.completion_callback_url ?? "",
    graderFails ? { status: "success", rollout_id: id } : completion,
  );
  if (request.grader_callback_url == null) return;
  const status = completion.status === "success" ? "success" : "failure";
  // Servers of the callback form say nothing about where a grader's failure came from.
  const body = { rollout_id: id, status, sample, err_message: completion.err_message, err_category: null };
  await post(request.grader_callback_url, body);
  await post(request.grader_callback_url, body);
}

async function chat(
  request: RolloutRequest,
  body: Record<string, unknown>,
  signal: AbortSignal,
): Promise<ChatMessageLike> {
  const response = await fetch(`${request.chat_completions_url}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${request.llm_api_key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "osmosis-rollout", ...body }),
    signal,
  });
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  // The gateway's own tests hold its answers to the schema.
  const answer = JSON.parse(text) as { choices: { message: ChatMessageLike }[] };
  const message = answer.choices[0]?.message;
  if (message === undefined) throw new Error("no choice");
  return message;
}

/**
 * The OpenAI-compatible endpoint of a run's rollouts. Each rollout has a URL and a bearer of its own from `openRollout`
 * until `close`; then its URL answers 404 and its trace is complete.
 *
 * A streamed call whose answer, or error, comes within a second has the status that a plain call would have. After that
 * the stream begins with a comment, which repeats while the model works, and an error becomes an event.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { createAdaptorServer } from "@hono/node-server";
import { failsForGood } from "@osmosis/engine";
import type { Sampler } from "@osmosis/engine";
import { ChatRequest, OsmosisError, errorMessage, issuesOf } from "@osmosis/protocol";
import { Hono } from "hono";
import type { Context } from "hono";
import { bodyLimit } from "hono/body-limit";
import type { Clock } from "../clock.ts";
import { deadlineOf } from "../deadline.ts";
import { createCallbackInbox } from "./callback-inbox.ts";
import type { CallbackInbox } from "./callback-inbox.ts";
import { ChatError, chatErrorBody } from "./chat-error.ts";
import { chatResponse } from "./chat-reply.ts";
import { eventStream } from "./event-stream.ts";
import { openLocalSession } from "./local-session.ts";
import type { LocalPolicy } from "./local-session.ts";
import { openProviderSession } from "./provider-session.ts";
import type { ProviderPolicy } from "./provider-session.ts";
import type { ChatSession, OpenRollout, OpenRolloutOptions, RolloutTrace } from "./rollout-session.ts";

/** Who answers: a model whose tokens we sample, or somebody else's endpoint. */
export type GatewayPolicy =
  | ({ readonly type: "local" } & LocalPolicy)
  | ({ readonly type: "provider" } & ProviderPolicy);

export type GatewayOptions = {
  readonly policy: GatewayPolicy;
  readonly clock: Clock;
  /** Seconds since 1970, for the field `created` of answers. */
  readonly created?: () => number;
};

export interface Gateway extends AsyncDisposable {
  /** `http://127.0.0.1:<port>` */
  readonly url: string;
  /**
   * Aborts with the reason when the model can never be sampled again: then no rollout can end well, and none is at fault.
   */
  readonly lost: AbortSignal;
  /** @throws Error when the id is open already. */
  openRollout(options: OpenRolloutOptions): OpenRollout;
}

const MAX_BODY_BYTES = 64 * 2 ** 20;

type Entry = {
  readonly session: ChatSession;
  readonly inbox: CallbackInbox;
  readonly chatKey: Buffer;
  readonly callbackKey: Buffer;
  refusedCalls: number;
};

/** Answers that mean that the request was at fault. */
const REFUSALS = new Set([400, 413, 422]);

/** Closed rollouts whose late callbacks are still acknowledged. */
const REMEMBERED_ROLLOUTS = 10_000;

/** Opens the endpoint on a free loopback port. Disposing it ends all connections. */
export async function openGateway({
  policy: given,
  clock,
  created = () => 0,
}: GatewayOptions): Promise<Gateway> {
  const lost = new AbortController();
  const policy: GatewayPolicy =
    given.type === "local" ? { ...given, sampler: watched(given.sampler, lost) } : given;
  const entries = new Map<string, Entry>();
  /** Callback keys of rollouts that were closed, oldest first. */
  const closed = new Map<string, Buffer>();
  const app = new Hono();
  app.use(bodyLimit({ maxSize: MAX_BODY_BYTES, onError: () => answerError(tooLarge()) }));
  app.get("/health", (c) => c.json({ status: "ok" }));

  app.post("/rollouts/:id/v1/chat/completions", async (c) => {
    const entry = entries.get(c.req.param("id"));
    if (entry === undefined) {
      throw new ChatError(404, "rollout_not_found", `No rollout ${c.req.param("id")} is open.`);
    }
    if (!hasBearer(c, entry.chatKey)) {
      throw new ChatError(401, "invalid_api_key", "The API key is not the one of this rollout.");
    }
    return answer(c, entry);
  });

  async function answer(c: Context, entry: Entry): Promise<Response> {
    const countRefusal = (error: unknown): never => {
      if (error instanceof ChatError && REFUSALS.has(error.status)) entry.refusedCalls += 1;
      throw error;
    };
    const request = await readRequest(c).catch(countRefusal);
    const hangUp = new AbortController();
    const signal = AbortSignal.any([c.req.raw.signal, hangUp.signal]);
    const reply = entry.session.complete(request, signal).catch(countRefusal);
    if (request.stream === true) return eventStream(reply, { request, clock, hangUp });
    const whole = await reply;
    if (whole.type === "answer") return c.json(chatResponse(whole.answer));
    if (whole.type === "json") return c.body(whole.text, 200, { "content-type": "application/json" });
    throw new Error("A call that does not stream was answered with a stream.");
  }

  app.post("/v1/rollouts/:id/:kind{completion|grader}", async (c) => {
    const entry = entries.get(c.req.param("id"));
    const key = entry?.callbackKey ?? closed.get(c.req.param("id"));
    if (key === undefined) return c.json({ detail: "unknown rollout" }, 404);
    if (!hasBearer(c, key)) return c.json({ detail: "wrong bearer" }, 401);
    // The server has done its duty; nobody waits for the result any more.
    if (entry === undefined) return c.json({ ok: true });
    const kind = c.req.param("kind") === "grader" ? "grader" : "completion";
    const { status, body } = entry.inbox.accept(kind, await c.req.json().catch(() => undefined));
    return c.json(body, status);
  });

  app.notFound((c) => answerError(new ChatError(404, "not_found", `There is no ${c.req.path} here.`)));
  app.onError((error) => {
    if (error instanceof ChatError) return answerError(error);
    const text = error instanceof OsmosisError ? error.message : `The gateway failed: ${errorMessage(error)}`;
    return answerError(new ChatError(500, "internal_error", text));
  });

  const server = createAdaptorServer({ fetch: app.fetch });
  // Longer than clients keep idle connections: whoever closes first must not be the server, in the middle of a request.
  if ("keepAliveTimeout" in server) server.keepAliveTimeout = 75_000;
  const url = await listen(server);

  return {
    url,
    lost: lost.signal,
    openRollout(options) {
      const id = options.rolloutId;
      if (entries.has(id)) throw new Error(`The rollout ${id} is open already.`);
      const [apiKey, callbackApiKey] = [newKey(), newKey()];
      const ended = new AbortController();
      const bounds = deadlineOf([options.signal, ended.signal]);
      const { signal } = bounds;
      const session =
        policy.type === "local"
          ? openLocalSession(policy, { ...options, signal }, created)
          : openProviderSession(policy, { ...options, signal }, clock);
      const inbox = createCallbackInbox(id);
      const entry = {
        session,
        inbox,
        chatKey: digest(apiKey),
        callbackKey: digest(callbackApiKey),
        refusedCalls: 0,
      };
      entries.set(id, entry);
      let trace: RolloutTrace | undefined;
      const segment = encodeURIComponent(id);
      return {
        chatCompletionsUrl: `${url}/rollouts/${segment}/v1`,
        apiKey,
        callbacks: {
          completionUrl: `${url}/v1/rollouts/${segment}/completion`,
          graderUrl: `${url}/v1/rollouts/${segment}/grader`,
          apiKey: callbackApiKey,
          ended: (options) => inbox.ended(options),
        },
        close() {
          if (trace !== undefined) return trace;
          trace = { ...session.close(), refusedCalls: entry.refusedCalls };
          entries.delete(id);
          remember(closed, id, entry.callbackKey);
          ended.abort(new DOMException("The rollout has ended.", "AbortError"));
          bounds[Symbol.dispose]();
          return trace;
        },
      };
    },
    async [Symbol.asyncDispose]() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      if ("closeAllConnections" in server) server.closeAllConnections();
      await closed;
    },
  };
}

/** The same sampler; what it loses for ever is told. */
function watched(sampler: Sampler, lost: AbortController): Sampler {
  return {
    contextLength: sampler.contextLength,
    async sample(request) {
      try {
        return await sampler.sample(request);
      } catch (error) {
        if (failsForGood(error)) lost.abort(error);
        throw error;
      }
    },
    endConversation: (conversation) => sampler.endConversation(conversation),
    [Symbol.asyncDispose]: () => sampler[Symbol.asyncDispose](),
  };
}

function listen(server: ReturnType<typeof createAdaptorServer>): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      if (address === null || typeof address === "string") reject(new Error("The gateway has no port."));
      else resolve(`http://127.0.0.1:${address.port}`);
    });
  });
}

async function readRequest(c: Context): Promise<ChatRequest> {
  const text = await c.req.text();
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new ChatError(400, "invalid_json", `The body is not JSON: ${errorMessage(error)}`);
  }
  const parsed = ChatRequest.safeParse(json);
  if (parsed.success) return parsed.data;
  const [first] = issuesOf(parsed.error);
  const param = first?.key ?? "(root)";
  throw new ChatError(400, "invalid_value", `${param}: ${first?.message ?? "is not valid"}`, { param });
}

/** The code that the answer carries tells clients that trying again is our business, and done. */
function answerError(error: ChatError): Response {
  return new Response(JSON.stringify(chatErrorBody(error)), {
    status: error.status,
    headers: { "content-type": "application/json", "x-should-retry": "false" },
  });
}

function tooLarge(): ChatError {
  return new ChatError(413, "body_too_large", `The body is larger than ${MAX_BODY_BYTES} bytes.`);
}

function newKey(): string {
  return `rk-${randomBytes(24).toString("base64url")}`;
}

function digest(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}

/** Compares in constant time, whatever the length of what was sent. */
function hasBearer(c: Context, expected: Buffer): boolean {
  const [scheme, key] = (c.req.header("authorization") ?? "").split(" ", 2);
  return timingSafeEqual(digest(key ?? ""), expected) && scheme?.toLowerCase() === "bearer";
}

function remember(closed: Map<string, Buffer>, id: string, key: Buffer): void {
  closed.delete(id);
  closed.set(id, key);
  const [oldest] = closed.keys();
  if (closed.size > REMEMBERED_ROLLOUTS && oldest !== undefined) closed.delete(oldest);
}

import { ChatErrorBody } from "@osmosis/protocol";
import { Hono } from "hono";
import { afterEach, expect, test } from "vitest";
import { eventsOf } from "../../test/events.ts";
import { fastClock } from "../../test/fast-clock.ts";
import { serveApp } from "../../test/http-server.ts";
import { openGateway } from "./gateway.ts";

const opened: AsyncDisposable[] = [];

afterEach(async () => {
  for (const server of opened.splice(0).reverse()) await server[Symbol.asyncDispose]();
});

type Answer = (body: Record<string, unknown>) => Response;

/** A provider that gives each answer once, in this order, and refuses every other call and every other key. */
async function provider(...answers: readonly Answer[]) {
  const left = [...answers];
  const bodies: Record<string, unknown>[] = [];
  const app = new Hono();
  app.post("/v1/chat/completions", async (c) => {
    if (c.req.header("authorization") !== "Bearer sk-real") {
      return c.json({ error: { message: "bad key", type: "x" } }, 401);
    }
    const body = await c.req.json<Record<string, unknown>>();
    bodies.push(body);
    return (left.shift() ?? (() => c.json({ error: { message: "unexpected call", type: "x" } }, 418)))(body);
  });
  const upstream = await serveApp(app);
  const clock = fastClock();
  const gateway = await openGateway({
    policy: { type: "provider", model: "gpt-real", baseUrl: `${upstream.url}/v1/`, apiKey: "sk-real", fetch },
    clock,
  });
  opened.push(upstream, gateway);
  const rollout = gateway.openRollout({
    rolloutId: "run-1",
    seed: 7,
    sampling: { temperature: 0, topP: 1, maxTokens: 10, wins: "request" },
    signal: new AbortController().signal,
  });
  const post = (body: unknown) =>
    fetch(`${rollout.chatCompletionsUrl}/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${rollout.apiKey}` },
      body: JSON.stringify(body),
    });
  return { rollout, post, bodies, clock, upstream, left };
}

const json =
  (status: number, body: unknown, headers: Record<string, string> = {}) =>
  () =>
    Response.json(body, { status, headers });
const refusal = (message: string, code?: string) => ({ error: { message, type: "x", code } });

const messages = [{ role: "user", content: "Hi" }];
const completion = {
  id: "c1",
  object: "chat.completion",
  created: 1,
  model: "gpt-real-2026",
  choices: [{ index: 0, message: { role: "assistant", content: "Hello" }, finish_reason: "stop", odd: 1 }],
  usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7, cost: 0.1 },
};

test("a request passes as it is but for the model, and the answer as it came", async () => {
  const { post, rollout, bodies } = await provider(json(200, completion));
  const body = { model: "osmosis-rollout", messages, seed: 3, reasoning_effort: "low", logprobs: true };
  const response = await post(body);
  expect(await response.json()).toEqual(completion);
  expect(bodies).toEqual([{ ...body, model: "gpt-real" }]);
  expect(rollout.close()).toEqual({
    sequences: [],
    messages: [...messages, { role: "assistant", content: "Hello" }],
    modelCalls: 1,
    promptTokens: 5,
    completionTokens: 2,
    truncated: false,
    prefixBreaks: 0,
    refusedCalls: 0,
    weightsVersionMin: 0,
    weightsVersionMax: 0,
  });
});

const head = { id: "c1", object: "chat.completion.chunk", created: 1, model: "m" };
const toolDelta = (index: number, args: string, name?: string) => ({
  ...head,
  choices: [
    {
      index: 0,
      delta: {
        tool_calls: [{ index, ...(name ? { id: `t${index}` } : {}), function: { name, arguments: args } }],
      },
    },
  ],
});
const chunks = [
  { ...head, choices: [{ index: 0, delta: { role: "assistant", content: "He" } }] },
  { ...head, choices: [{ index: 0, delta: { content: "llo" } }] },
  toolDelta(0, '{"a"', "multiply"),
  toolDelta(0, ":1}"),
  { ...head, choices: [{ index: 0, delta: {}, finish_reason: "length" }] },
  { ...head, choices: [], usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 } },
];

/** The text of a stream, in pieces that do not respect its events. */
function inPieces(text: string, size: number): Response {
  const bytes = new TextEncoder().encode(text);
  let at = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (at >= bytes.length) controller.close();
      else controller.enqueue(bytes.slice(at, (at += size)));
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

test("a stream passes event by event, and its usage is counted though nobody asked for it", async () => {
  const text =
    chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\r\n\r\n`).join("") + "data: [DONE]\r\n\r\n";
  const { post, rollout, bodies } = await provider(() => inPieces(text, 7));
  const passed = eventsOf(await (await post({ model: "x", messages, stream: true })).text());
  expect(bodies[0]).toMatchObject({ stream_options: { include_usage: true } });
  expect(passed).toEqual([...chunks.slice(0, -1).map((chunk) => JSON.stringify(chunk)), "[DONE]"]);
  expect(rollout.close()).toMatchObject({
    promptTokens: 5,
    completionTokens: 2,
    truncated: true,
    messages: [
      ...messages,
      {
        role: "assistant",
        content: "Hello",
        tool_calls: [{ id: "t0", type: "function", function: { name: "multiply", arguments: '{"a":1}' } }],
      },
    ],
  });
});

test("a client that asked for the usage gets it", async () => {
  const text = chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") + "data: [DONE]\n\n";
  const { post } = await provider(() => inPieces(text, 1000));
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  expect(eventsOf(await (await post(body)).text())).toHaveLength(chunks.length + 1);
});

test("a stream that breaks off ends in an error event and is the provider's failure", async () => {
  const { post, rollout } = await provider(() => inPieces(`data: ${JSON.stringify(chunks[0])}\n\n`, 1000));
  const text = await (await post({ messages, stream: true })).text();
  expect(text).toContain("event: error");
  expect(rollout.close().failure?.message).toBe("The provider's stream broke off.");
});

test("a rate limit and a server error are tried again, after as long as the provider says", async () => {
  const { post, rollout, clock, left } = await provider(
    json(429, refusal("slow down"), { "retry-after": "7" }),
    json(503, refusal("overloaded")),
    json(200, completion),
  );
  expect((await post({ messages })).status).toBe(200);
  expect(clock.slept).toEqual([7000, 1000]);
  expect(left).toEqual([]);
  expect(rollout.close().failure).toBeUndefined();
});

test.each([
  [429, 429],
  [500, 500],
  [401, 502],
  [404, 502],
])("an answer of %d that stays is the provider's failure, told as %d", async (status, told) => {
  const { post, rollout } = await provider(
    ...Array.from({ length: 5 }, () => json(status, refusal("no", "why"))),
  );
  const response = await post({ messages });
  expect(response.status).toBe(told);
  expect(response.headers.get("x-should-retry")).toBe("false");
  expect(ChatErrorBody.parse(await response.json()).error).toMatchObject({ code: "why" });
  expect(rollout.close().failure).toEqual({
    class: "provider",
    message: `The provider answered ${status}: no`,
  });
});

test("a provider that cannot be reached is the provider's failure", async () => {
  const { post, rollout, upstream, clock } = await provider();
  await upstream[Symbol.asyncDispose]();
  expect((await post({ messages })).status).toBe(502);
  expect(clock.slept).toEqual([500, 1000, 2000, 4000]);
  expect(rollout.close().failure?.message).toContain("could not be reached");
});

test("a request that the provider finds wrong is the agent's own fault", async () => {
  const { post, rollout } = await provider(
    json(400, refusal("unknown tool", "invalid_tools")),
    json(400, refusal("too long", "context_length_exceeded")),
  );
  expect((await post({ messages })).status).toBe(400);
  expect((await post({ messages })).status).toBe(400);
  const trace = rollout.close();
  expect(trace.failure).toBeUndefined();
  expect(trace).toMatchObject({ truncated: true, refusedCalls: 2 });
});

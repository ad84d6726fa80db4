import { ChatChunk, ChatErrorBody, ChatResponse, OsmosisError } from "@osmosis/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { loadTestCodec } from "../../test/chat-codec.ts";
import { eventsOf } from "../../test/events.ts";
import { samplerOf, scriptedSampler } from "../../test/scripted-sampler.ts";
import type { ScriptedSampler } from "../../test/scripted-sampler.ts";
import { systemClock } from "../io.ts";
import { openGateway } from "./gateway.ts";
import type { Gateway } from "./gateway.ts";
import type { OpenRollout, OpenRolloutOptions } from "./rollout-session.ts";

const codec = await loadTestCodec();
const gateways: Gateway[] = [];

afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway[Symbol.asyncDispose]()));
});

async function open(sampler: ScriptedSampler, options: Partial<OpenRolloutOptions> = {}) {
  const gateway = await openGateway({
    policy: { type: "local", name: "tiny", sampler, codec },
    clock: systemClock,
    created: () => 1_700_000_000,
  });
  gateways.push(gateway);
  const rollout = gateway.openRollout({
    rolloutId: "run-1",
    seed: 7,
    sampling: { temperature: 1, topP: 1, maxTokens: 200, wins: "run" },
    signal: new AbortController().signal,
    ...options,
  });
  return { gateway, rollout };
}

function post(rollout: OpenRollout, body: unknown, options: { key?: string; signal?: AbortSignal } = {}) {
  return fetch(`${rollout.chatCompletionsUrl}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${options.key ?? rollout.apiKey}`, "content-type": "application/json" },
    body: typeof body === "string" ? body : JSON.stringify(body),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
}

async function errorOf(response: Response) {
  return { status: response.status, ...ChatErrorBody.parse(await response.json()).error };
}

const question = { role: "user", content: "2 times 3?" };
const tools = [{ type: "function", function: { name: "multiply", parameters: { type: "object" } } }];
const CALL = '<tool_call>{"name":"multiply","arguments":{"a":2,"b":3}}</tool_call>';
const HEAD =
  '<|im_start|>system\nTools, called as <tool_call>{"name":…,"arguments":{…}}</tool_call>:\n' +
  `{"name": "multiply", "parameters": {"type": "object"}}<|im_end|>\n` +
  "<|im_start|>user\n2 times 3?<|im_end|>\n<|im_start|>assistant\n";
const TAIL = "\n<|im_start|>tool\n6<|im_end|>\n<|im_start|>assistant\n";

function twoTurns() {
  return scriptedSampler(codec, [
    { prompt: HEAD, answer: CALL },
    { prompt: `${HEAD}${CALL}<|im_end|>${TAIL}`, answer: "It is 6." },
  ]);
}

/** Two turns of an agent that calls a tool. */
async function playTwoTurns(rollout: OpenRollout) {
  const first = ChatResponse.parse(await (await post(rollout, { messages: [question], tools })).json());
  const call = first.choices[0]?.message.tool_calls?.[0];
  const messages = [
    question,
    first.choices[0]?.message,
    { role: "tool", tool_call_id: call?.id, content: "6" },
  ];
  const second = ChatResponse.parse(await (await post(rollout, { messages, tools })).json());
  return { first, second };
}

/** Everything of two turns that the seed decides. */
async function seedsOf(seed: number) {
  const sampler = twoTurns();
  const { rollout } = await open(sampler, { seed });
  const { first } = await playTwoTurns(rollout);
  return [...sampler.requests.map((request) => request.seed), first.choices[0]?.message.tool_calls?.[0]?.id];
}

describe("a conversation", () => {
  test("gets answers in OpenAI's form, and leaves one training sequence", async () => {
    const sampler = twoTurns();
    const { rollout } = await open(sampler);
    const { first, second } = await playTwoTurns(rollout);

    expect(first).toMatchObject({
      object: "chat.completion",
      created: 1_700_000_000,
      model: "tiny",
      choices: [
        {
          index: 0,
          finish_reason: "tool_calls",
          message: {
            role: "assistant",
            content: null,
            tool_calls: [{ type: "function", function: { name: "multiply", arguments: '{"a":2,"b":3}' } }],
          },
        },
      ],
    });
    expect(second.choices[0]).toMatchObject({
      finish_reason: "stop",
      message: { role: "assistant", content: "It is 6." },
    });
    expect(sampler.unused()).toEqual([]);

    const trace = rollout.close();
    const [sequence] = trace.sequences;
    expect(trace).toMatchObject({ modelCalls: 2, truncated: false, prefixBreaks: 0 });
    expect(trace.completionTokens).toBe(sequence?.mask.filter((bit) => bit === 1).length);
    expect(trace.promptTokens).toBe(sampler.requests.reduce((sum, { prompt_T }) => sum + prompt_T.length, 0));
    expect(codec.decode(sequence?.tokens ?? [])).toBe(`${HEAD}${CALL}<|im_end|>${TAIL}It is 6.<|im_end|>`);
    expect(trace.messages.map((message) => message.role)).toEqual(["user", "assistant", "tool", "assistant"]);
    expect(sampler.ended).toEqual(["run-1/0"]);
    expect(rollout.close()).toBe(trace);
  });

  test("streams exactly what it would have answered at once", async () => {
    const plain = (await playTwoTurns((await open(twoTurns())).rollout)).first;
    const { rollout } = await open(twoTurns());
    const response = await post(rollout, {
      messages: [question],
      tools,
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    const text = await response.text();
    expect(text.startsWith(": ping\n\n")).toBe(true);
    expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
    const chunks = eventsOf(text)
      .slice(0, -1)
      .map((data) => ChatChunk.parse(JSON.parse(data)));
    const delta = chunks[0]?.choices[0]?.delta;
    expect(chunks.map(({ id }) => id)).toEqual(chunks.map(() => plain.id));
    expect(delta).toEqual({
      role: "assistant",
      tool_calls: plain.choices[0]?.message.tool_calls?.map((call, index) => ({ ...call, index })),
    });
    expect(chunks[1]?.choices[0]?.finish_reason).toBe("tool_calls");
    expect(chunks[2]).toMatchObject({ choices: [], usage: plain.usage });
  });

  test("is sampled from the rollout's seed: the same rollout asks for the same, another for something else", async () => {
    const [a, again, other] = [await seedsOf(1), await seedsOf(1), await seedsOf(2)];
    expect(a).toEqual(again);
    expect(new Set([...a, ...other]).size).toBe(6);
  });

  test("is sampled from seeds that 32 bits with a sign can hold, as trainers by URL keep them", async () => {
    const seeds = await Promise.all(Array.from({ length: 16 }, (_, seed) => seedsOf(seed)));
    const numbers = seeds.flat().filter((seed) => typeof seed === "number");
    expect(numbers).toHaveLength(32);
    expect(numbers.filter((seed) => seed < 0 || seed >= 2 ** 31)).toEqual([]);
  });

  test("asked twice at once gives two branches with seeds of their own", async () => {
    const sampler = samplerOf(codec, ({ seed }) => ({ answer: `${seed}` }));
    const { rollout } = await open(sampler);
    const answers = await Promise.all(
      [1, 2].map(async () => (await post(rollout, { messages: [question] })).json()),
    );
    expect(
      new Set(answers.map((answer) => ChatResponse.parse(answer).choices[0]?.message.content)).size,
    ).toBe(2);
    const trace = rollout.close();
    expect(trace.sequences.length).toBe(2);
    expect(trace).toMatchObject({ modelCalls: 2, prefixBreaks: 0 });
    expect(new Set(sampler.requests.map(({ conversation }) => conversation)).size).toBe(2);
  });

  test("whose history the client changed goes on in a branch that is counted as a break", async () => {
    const sampler = samplerOf(codec, () => ({ answer: "yes" }));
    const { rollout } = await open(sampler);
    await post(rollout, { messages: [question] });
    await post(rollout, { messages: [question, { role: "assistant", content: "no" }, question] });
    const trace = rollout.close();
    expect(trace.prefixBreaks).toBe(1);
    expect(trace.sequences.length).toBe(2);
  });
});

describe("sampling", () => {
  const asked = { messages: [question], temperature: 0.2, top_p: 0.5, max_tokens: 3 };

  test("is the run's own in training, though a request may ask for fewer tokens", async () => {
    const sampler = samplerOf(codec, () => ({ answer: "yes" }));
    const { rollout } = await open(sampler);
    await post(rollout, asked);
    expect(sampler.requests[0]).toMatchObject({ temperature: 1, topP: 1, maxTokens: 3 });
  });

  test("is the request's in an evaluation, the run's where it says nothing", async () => {
    const sampler = samplerOf(codec, () => ({ answer: "yes" }));
    const sampling = { temperature: 0, topP: 0.9, maxTokens: 50, wins: "request" } as const;
    const { rollout } = await open(sampler, { sampling });
    await post(rollout, asked);
    await post(rollout, { messages: [question], max_completion_tokens: 900 });
    expect(sampler.requests[0]).toMatchObject({ temperature: 0.2, topP: 0.5, maxTokens: 3 });
    expect(sampler.requests[1]).toMatchObject({ temperature: 0, topP: 0.9, maxTokens: 50 });
  });

  test("that ran into the token limit is truncated", async () => {
    const { rollout } = await open(samplerOf(codec, () => ({ answer: "a long answer" })));
    const body = ChatResponse.parse(
      await (await post(rollout, { messages: [question], max_tokens: 2 })).json(),
    );
    expect(body.choices[0]?.finish_reason).toBe("length");
    expect(rollout.close().truncated).toBe(true);
  });

  test("ends at a stop string, which is not in the answer", async () => {
    const { rollout } = await open(samplerOf(codec, () => ({ answer: "one two three" })));
    const body = ChatResponse.parse(
      await (await post(rollout, { messages: [question], stop: ["two"] })).json(),
    );
    expect(body.choices[0]).toMatchObject({ finish_reason: "stop", message: { content: "one " } });
    const [sequence] = rollout.close().sequences;
    expect(codec.decode(sequence?.tokens ?? []).endsWith("assistant\none two")).toBe(true);
  });

  test("gives text alone when tools are not to be called", async () => {
    const { rollout } = await open(samplerOf(codec, () => ({ answer: `So: ${CALL}` })));
    const body = ChatResponse.parse(
      await (await post(rollout, { messages: [question], tools, tool_choice: "none" })).json(),
    );
    expect(body.choices[0]?.message).toEqual({ role: "assistant", content: "So:" });
  });
});

/** A model whose context holds 60 tokens. */
function smallSampler() {
  return samplerOf(codec, () => ({ answer: "yes" }), 60);
}

describe("a request is refused", () => {
  test("without the rollout's own key", async () => {
    const { rollout } = await open(smallSampler());
    expect(await errorOf(await post(rollout, { messages: [question] }, { key: "rk-other" }))).toMatchObject({
      status: 401,
      code: "invalid_api_key",
    });
    expect(await errorOf(await post(rollout, { messages: [question] }, { key: "" }))).toMatchObject({
      status: 401,
    });
  });

  test("for a rollout that is unknown or closed", async () => {
    const { rollout } = await open(smallSampler());
    const other = { ...rollout, chatCompletionsUrl: rollout.chatCompletionsUrl.replace("run-1", "run-2") };
    expect(await errorOf(await post(other, { messages: [question] }))).toMatchObject({ status: 404 });
    rollout.close();
    expect(await errorOf(await post(rollout, { messages: [question] }))).toMatchObject({ status: 404 });
  });

  test.each([
    ["{", "invalid_json", null],
    [{ messages: [] }, "invalid_value", "messages"],
    [{ messages: [{ role: "wizard", content: "x" }] }, "invalid_value", "messages.0.role"],
    [{ messages: [question], temperature: "hot" }, "invalid_value", "temperature"],
    [{ messages: [question], n: 2 }, "unsupported_value", "n"],
    [{ messages: [question], tools, tool_choice: "required" }, "unsupported_value", "tool_choice"],
    [
      { messages: [question], response_format: { type: "json_object" } },
      "unsupported_value",
      "response_format",
    ],
    [{ messages: [question, { role: "system", content: "late" }] }, "invalid_value", "messages"],
  ])("for the body %j", async (body, code, param) => {
    const { rollout } = await open(smallSampler());
    expect(await errorOf(await post(rollout, body))).toMatchObject({ status: 400, code, param });
  });

  test("when the prompt leaves no room in the context, and the rollout is truncated", async () => {
    const { rollout } = await open(smallSampler());
    const long = { role: "user", content: "word ".repeat(60) };
    expect(await errorOf(await post(rollout, { messages: [long], stream: true }))).toMatchObject({
      status: 400,
      code: "context_length_exceeded",
    });
    expect(rollout.close().truncated).toBe(true);
  });

  test("when a prompt is longer than the run allows", async () => {
    const { rollout } = await open(smallSampler(), { maxPromptTokens: 5 });
    expect(await errorOf(await post(rollout, { messages: [question] }))).toMatchObject({
      code: "context_length_exceeded",
      message: expect.stringContaining("max_prompt_length"),
    });
    expect(rollout.close()).toMatchObject({ truncated: true, refusedCalls: 1 });
  });
});

test("a conversation whose history was changed is none that begins: it may be longer than a first prompt", async () => {
  const sampler = samplerOf(codec, () => ({ answer: "yes" }));
  const { rollout } = await open(sampler, { maxPromptTokens: 30 });
  const past = [
    question,
    { role: "assistant", content: "no" },
    { role: "user", content: "Sure? ".repeat(20) },
  ];
  expect((await post(rollout, { messages: [question] })).status).toBe(200);
  expect((await post(rollout, { messages: past })).status).toBe(200);
  expect(sampler.requests.map(({ prompt_T }) => prompt_T.length > 30)).toEqual([false, true]);
  expect(rollout.close()).toMatchObject({ truncated: false, prefixBreaks: 1 });
});

test("what the sampler finds invalid is the request's fault, not the provider's", async () => {
  const sampler = samplerOf(codec, () => {
    throw new OsmosisError("VALIDATION", "temperature is 0.0001.", { hint: "Use 0." });
  });
  const { rollout } = await open(sampler);
  expect(await errorOf(await post(rollout, { messages: [question] }))).toMatchObject({
    status: 400,
    code: "invalid_value",
    message: "temperature is 0.0001. Use 0.",
  });
  const { failure, refusedCalls } = rollout.close();
  expect({ failure, refusedCalls }).toEqual({ failure: undefined, refusedCalls: 1 });
});

test("a rollout that has used up its tokens gets empty answers, so that it ends and can be graded", async () => {
  const sampler = samplerOf(codec, () => ({ answer: "one two three" }));
  const { rollout } = await open(sampler, { maxResponseTokens: 5 });
  const ask = async () => ChatResponse.parse(await (await post(rollout, { messages: [question] })).json());
  await ask();
  const last = await ask();
  expect(last.choices[0]).toMatchObject({ finish_reason: "length", message: { content: "" } });
  expect(sampler.requests.length).toBeLessThan(3);
  const trace = rollout.close();
  expect(trace).toMatchObject({ truncated: true, refusedCalls: 0 });
  expect(trace.completionTokens).toBe(5);
});

test("a model that fails is the provider's failure, until a later call succeeds", async () => {
  let broken = true;
  const sampler = samplerOf(codec, () => {
    if (broken) throw new Error("the session is gone");
    return { answer: "yes" };
  });
  const { rollout } = await open(sampler);
  const refused = await post(rollout, { messages: [question] });
  expect(refused.headers.get("x-should-retry")).toBe("false");
  expect(await errorOf(refused)).toMatchObject({ status: 503, code: "sampling_failed" });
  broken = false;
  await post(rollout, { messages: [question] });
  broken = true;
  await post(rollout, { messages: [question] });
  expect(rollout.close().failure).toEqual({
    class: "provider",
    message: "The model could not be sampled: the session is gone",
  });
});

test("a client that hangs up ends the sampling, and nothing of it is trained", async () => {
  const started = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<void>();
  const sampler = samplerOf(codec, async ({ signal }) => {
    started.resolve();
    await new Promise((_, reject) => {
      signal?.addEventListener("abort", () => {
        ended.resolve();
        reject(new Error("aborted"));
      });
    });
    return { answer: "" };
  });
  const { rollout } = await open(sampler);
  const client = new AbortController();
  const call = post(rollout, { messages: [question] }, { signal: client.signal });
  await started.promise;
  client.abort();
  await expect(call).rejects.toThrow();
  await ended.promise;
  const trace = rollout.close();
  expect(trace).toMatchObject({ modelCalls: 0, sequences: [] });
  expect(trace.failure).toBeUndefined();
});

test("closing a rollout ends its calls with 404", async () => {
  const started = Promise.withResolvers<void>();
  const sampler = samplerOf(codec, async ({ signal }) => {
    started.resolve();
    await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted"))));
    return { answer: "" };
  });
  const { rollout } = await open(sampler);
  const call = post(rollout, { messages: [question] });
  await started.promise;
  rollout.close();
  expect((await call).status).toBe(404);
});

test("an answer that takes longer than a second streams comments first, and errors as events", async () => {
  const sampler = samplerOf(codec, async () => {
    await systemClock.sleep(1200);
    throw new Error("too late");
  });
  const { rollout } = await open(sampler);
  const response = await post(rollout, { messages: [question], stream: true });
  expect(response.status).toBe(200);
  const text = await response.text();
  expect(text.startsWith(": ping\n\nevent: error\ndata: ")).toBe(true);
  expect(eventsOf(text).at(-1)).toBe("[DONE]");
});

test("an id that is open is not opened again", async () => {
  const { gateway, rollout } = await open(samplerOf(codec, () => ({ answer: "yes" })));
  const again = () =>
    gateway.openRollout({
      rolloutId: "run-1",
      seed: 0,
      sampling: { temperature: 1, topP: 1, maxTokens: 1, wins: "run" },
      signal: new AbortController().signal,
    });
  expect(again).toThrow("open already");
  rollout.close();
  expect(again().apiKey).not.toBe(rollout.apiKey);
});

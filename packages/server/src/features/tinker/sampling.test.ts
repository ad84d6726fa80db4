import { createEmbeddedService, loadChatCodec } from "@osmosis/engine";
import { TINKER_PROTOBUF, TinkerSampleResponse, decodeSampleResponse } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { z } from "zod";
import { startTestServer, type TestServer } from "../../testing.ts";
import { mintKey } from "./testing.ts";

vi.setConfig({ testTimeout: 120_000 });

const MODEL = "osmosis/tiny-agent";

let server: TestServer;
let apiKey = "";
let folder = "";
beforeAll(async () => {
  server = await startTestServer();
  apiKey = await mintKey(server);
  ({ folder } = await server.platform.tinker.baseModels.open(MODEL));
});
afterAll(() => server[Symbol.asyncDispose]());

async function post(path: string, json: object, headers: Record<string, string> = {}) {
  return await fetch(`${server.url}/api/v1${path}`, {
    method: "POST",
    headers: { "x-api-key": apiKey, "content-type": "application/json", ...headers },
    body: JSON.stringify(json),
  });
}

/** The result of a sampling request, or the reason why there is none. */
async function sample(prompt_T: readonly number[], params: object, more: object = {}) {
  const started = await post("/asample", {
    base_model: MODEL,
    prompt: { chunks: [{ type: "encoded_text", tokens: prompt_T }] },
    sampling_params: params,
    ...more,
  });
  const { request_id } = z.object({ request_id: z.string() }).parse(await started.json());
  const answer: unknown = await (await post("/retrieve_future", { request_id })).json();
  const parsed = TinkerSampleResponse.safeParse(answer);
  if (!parsed.success) throw new Error(JSON.stringify(answer));
  return { request_id, ...parsed.data };
}

const codec = () => loadChatCodec(folder);
const promptOf = async (text: string) => (await codec()).renderPrompt([{ role: "user", content: text }]);

test("prompt log probabilities are those of a forward pass, in JSON and in protocol buffers", async () => {
  const prompt_T = await promptOf("Multiply 3 and 4.");
  const { request_id, prompt_logprobs: told } = await sample(
    prompt_T,
    { max_tokens: 1 },
    { prompt_logprobs: true },
  );
  await using service = createEmbeddedService({ threads: 1 });
  await using model = await service.createModel({ folder }, { method: { type: "full" }, seed: 0 });
  const column = (value: number) => prompt_T.map(() => value);
  const { logprobs_B_T } = await model.forward(
    [
      {
        tokens_T: prompt_T,
        weights_T: column(1),
        advantages_T: column(0),
        samplerLogprobs_T: column(0),
      },
    ],
    { type: "cross_entropy" },
  );
  expect(told?.[0]).toBeNull();
  expect(told).toHaveLength(prompt_T.length);
  for (let t = 1; t < prompt_T.length; t++) expect(told?.[t]).toBeCloseTo(logprobs_B_T[0]?.[t] ?? 1, 5);

  const packed = await post("/retrieve_future", { request_id }, { accept: TINKER_PROTOBUF });
  const decoded = decodeSampleResponse(new Uint8Array(await packed.arrayBuffer()));
  expect(decoded.prompt_logprobs).toEqual(told);

  const { prompt_logprobs: tail } = await sample(
    prompt_T,
    { max_tokens: 1 },
    { prompt_logprobs: true, prompt_logprobs_last_n: 2 },
  );
  expect(tail?.slice(0, -2)).toEqual(prompt_T.slice(2).map(() => null));
  for (const at of [-2, -1]) expect(tail?.at(at)).toBeCloseTo(told?.at(at) ?? 1, 5);
});

test("with top_k 1 every seed gives the likeliest tokens, each with certainty", async () => {
  const prompt_T = await promptOf("Multiply 3 and 4.");
  const greedy = await sample(prompt_T, { max_tokens: 12, temperature: 0, stop: [] });
  const { sequences } = await sample(
    prompt_T,
    { max_tokens: 12, temperature: 1, top_k: 1, stop: [], seed: 9 },
    { num_samples: 3 },
  );
  for (const { tokens, logprobs } of sequences) {
    expect(tokens).toEqual(greedy.sequences[0]?.tokens);
    expect(logprobs?.every((logprob) => logprob === 0)).toBe(true);
  }
});

test("an answer ends with the token that completes a stop text, be it of several tokens or a part of one", async () => {
  const prompt_T = await promptOf("Multiply 3 and 4.");
  const free = await sample(prompt_T, { max_tokens: 80, temperature: 0, stop: [] });
  const tokens = free.sequences[0]?.tokens ?? [];
  const chat = await codec();
  const whole = chat.decode(tokens);
  // Behind the first piece, so that several pieces are needed.
  const stop = whole.slice(chat.decode(tokens.slice(0, 40)).length).slice(0, 5);
  expect(chat.encode(stop).length).toBeGreaterThan(1);
  const { sequences } = await sample(prompt_T, {
    max_tokens: 80,
    temperature: 0,
    stop: [stop, "never said"],
  });
  const cut = sequences[0];
  expect(cut?.stop_reason).toBe("stop");
  expect(cut?.tokens).toEqual(tokens.slice(0, cut?.tokens.length));
  expect(cut?.logprobs).toHaveLength(cut?.tokens.length ?? 0);
  const text = chat.decode(cut?.tokens ?? []);
  expect(text).toContain(stop);
  expect(chat.decode(cut?.tokens.slice(0, -1) ?? [])).not.toContain(stop);

  const never = await sample(prompt_T, { max_tokens: 40, temperature: 0, stop: "never said" });
  expect(never.sequences[0]).toMatchObject({ stop_reason: "length", tokens: tokens.slice(0, 40) });
});

test("with a stop text the same seed gives the same tokens", async () => {
  const prompt_T = await promptOf("Multiply 3 and 4.");
  const once = () =>
    sample(prompt_T, { max_tokens: 70, temperature: 1, stop: ["never said"], seed: 4 }, { num_samples: 2 });
  const [first, second] = [await once(), await once()];
  expect(second.sequences).toEqual(first.sequences);
  expect(first.sequences[0]?.tokens).not.toEqual(first.sequences[1]?.tokens);
});

test.each([
  ["topk_prompt_logprobs", { topk_prompt_logprobs: 5 }],
  ["topk_sample_logprobs", { topk_sample_logprobs: 5 }],
  ["prompt_alt_tokens_k", { prompt_alt_tokens_k: 2 }],
])("%s is refused by name, not ignored", async (name, more) => {
  await expect(sample([1, 2], { max_tokens: 1 }, more)).rejects.toThrow(`does not do ${name}`);
});

test("a prompt that leaves no room for an answer is refused with both lengths", async () => {
  const long = Array.from({ length: 5000 }, () => 5);
  await expect(sample(long, { max_tokens: 1 })).rejects.toThrow(
    /The prompt has 5000 tokens; with a context of \d+/,
  );
});

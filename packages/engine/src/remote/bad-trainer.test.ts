/** Trainers that are down, slow, unfriendly or talk rubbish: each ends in an error that says so. */
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { encodeForwardBackwardOutput, TINKER_PROTOBUF } from "@osmosis/protocol";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import type { Datum, SampleRequest } from "../service.ts";
import { failsForGood, ModelLost } from "./model-lost.ts";
import { createRemoteService } from "./service.ts";
import { writeTar } from "./tar.ts";

type Answer =
  | { readonly status?: number; readonly type?: string; readonly body: string | Uint8Array }
  | "silence"
  | "cut";

let server: Server | undefined;
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => server?.close(resolve) ?? resolve(undefined));
  server = undefined;
});

const json = (value: unknown, status = 200): Answer => ({ status, body: JSON.stringify(value) });
const HTML: Answer = { type: "text/html", body: "<html><body>Welcome to nginx!</body></html>" };

const GOOD: Readonly<Record<string, Answer>> = {
  "/client/config": json({}),
  "/create_session": json({ session_id: "s" }),
  "/get_server_capabilities": json({ supported_models: [{ model_name: "m", max_context_length: 64 }] }),
  "/create_model": json({ request_id: "create_model" }),
  create_model: json({ model_id: "s:train:0" }),
};

/** A trainer on loopback that answers a path, or the result of one without its slash, by the list; the last stays. */
async function listen(script: Readonly<Record<string, Answer | readonly Answer[]>>): Promise<string> {
  const left = new Map(
    Object.entries({ ...GOOD, ...script }).map(([key, value]) => [
      key,
      Array.isArray(value) ? [...value] : [value],
    ]),
  );
  server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const path = (request.url ?? "").replace("/api/v1", "");
      const key =
        path === "/retrieve_future"
          ? (JSON.parse(Buffer.concat(chunks).toString()) as { request_id: string }).request_id
          : path;
      const answers = left.get(key) ?? [json({ request_id: path.slice(1) })];
      const answer = (answers.length > 1 ? answers.shift() : answers[0]) as Answer;
      if (answer === "silence") return;
      if (answer === "cut") return void request.socket.destroy();
      response
        .writeHead(answer.status ?? 200, { "content-type": answer.type ?? "application/json" })
        .end(answer.body);
    });
  });
  await new Promise<void>((resolve) => server?.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" ? (address?.port ?? 0) : 0}`;
}

const DATUM: Datum = {
  tokens_T: [1, 2, 3],
  weights_T: [0, 0, 0.5],
  advantages_T: [0, 0, 1],
  samplerLogprobs_T: [0, 0, -2],
};
const LORA = { method: { type: "lora", rank: 4, alpha: 32 }, seed: 1 } as const;

/** A gradient at the trainer, from opening a session to the result. */
async function gradient(url: string, times: { request?: number; result?: number } = {}): Promise<unknown> {
  await using service = createRemoteService({
    url,
    apiKey: "tml-key",
    fetch,
    reduction: "sum",
    delay: async () => {},
    requestTimeoutMs: times.request ?? 5000,
    resultTimeoutMs: times.result ?? 5000,
  });
  const model = await service.createModel({ folder: "m" }, LORA);
  return await model.forwardBackward([DATUM], { type: "cross_entropy" });
}

const REQUEST = {
  conversation: "c",
  prompt_T: [1],
  maxTokens: 2,
  temperature: 1,
  topP: 1,
  stopTokens: [],
  seed: 0,
};

/** What becomes of a sample at the trainer, be it an error. */
async function sampled(url: string, changes: Partial<SampleRequest> = {}): Promise<unknown> {
  await using service = createRemoteService({ url, apiKey: "k", fetch, reduction: "sum", vocabSize: 8 });
  const model = await service.createModel({ folder: "m" }, LORA);
  return await model.sample({ ...REQUEST, ...changes }).catch((error: unknown) => error);
}

const output = (data: readonly number[]) =>
  encodeForwardBackwardOutput({
    loss_fn_output_type: "x",
    loss_fn_outputs: [{ logprobs: { data: [...data], dtype: "float32", shape: [data.length] } }],
    metrics: {},
  });
const result = (body: Uint8Array): Record<string, Answer> => ({
  forward_backward: { type: TINKER_PROTOBUF, body },
});

test("nobody listens: NETWORK, with the reason", async () => {
  await expect(gradient("http://127.0.0.1:1")).rejects.toMatchObject({
    code: "NETWORK",
    message: expect.stringMatching(/http:\/\/127\.0\.0\.1:1 fails: .+\(.+\)/),
  });
});

describe("a trainer that", () => {
  test.each([401, 403])("answers %d asks for the key", async (status) => {
    const url = await listen({ "/create_session": json({ detail: "no" }, status) });
    await expect(gradient(url)).rejects.toMatchObject({ code: "AUTH_REQUIRED" });
  });

  test("is another web server says so", async () => {
    const url = await listen({ "/client/config": { status: 404, body: "" }, "/create_session": HTML });
    await expect(gradient(url)).rejects.toMatchObject({
      code: "NETWORK",
      hint: expect.stringContaining("address"),
    });
  });

  test("never answers a request is given up after a deadline", async () => {
    const url = await listen({ "/create_session": "silence" });
    await expect(gradient(url, { request: 20 })).rejects.toMatchObject({
      code: "NETWORK",
      message: expect.stringContaining("no answer within"),
    });
  });

  test("never answers holds nobody up who is told to end", async () => {
    const stop = new AbortController();
    const { promise: asked, resolve } = Promise.withResolvers<void>();
    const url = await listen({ "/create_session": "silence" });
    await using service = createRemoteService({
      url,
      apiKey: "k",
      fetch: (...request) => {
        resolve();
        return fetch(...request);
      },
      signal: stop.signal,
    });
    const opening = service.createModel({ folder: "m" }, LORA);
    await asked;
    stop.abort(new Error("somebody asked for the end of the run"));
    await expect(opening).rejects.toThrow("somebody asked for the end of the run");
  });

  test("never answers holds up nobody who closes it either", async () => {
    const service = createRemoteService({
      url: await listen({ "/create_session": "silence" }),
      apiKey: "k",
      fetch,
    });
    const opening = service.createModel({ folder: "m" }, LORA).catch((error: unknown) => error);
    await service[Symbol.asyncDispose]();
    expect(await opening).toMatchObject({ message: "The training service is closed." });
  });

  test("is silent while it computes is waited for", async () => {
    const url = await listen({
      forward_backward: ["silence", json({}, 408), { type: TINKER_PROTOBUF, body: output([-1, -2]) }],
    });
    expect(await gradient(url, { request: 200 })).toMatchObject({ loss: 1 });
  });

  test("never has the result is given up after a deadline", async () => {
    const url = await listen({ forward_backward: json({ type: "try_again", queue_state: "active" }) });
    await expect(gradient(url, { result: 100 })).rejects.toMatchObject({
      code: "NETWORK",
      message: expect.stringContaining("no result after"),
    });
  });

  test.each([
    ["HTML for a result", { forward_backward: HTML }],
    ["truncated protocol buffers", result(output([-1, -2]).subarray(0, 20))],
    ["too few log probabilities", result(output([-1]))],
    ["results for nothing", result(new Uint8Array())],
    ["a log probability that is no number", result(output([-1, Number.NaN]))],
    ["the wrong JSON", { forward_backward: json({ loss_fn_outputs: "none" }) }],
  ] as const)("answers %s is a PLATFORM_ERROR", async (_, script) => {
    const url = await listen(script);
    await expect(gradient(url)).rejects.toMatchObject({
      code: "PLATFORM_ERROR",
      message: expect.stringContaining("The trainer answered with"),
    });
  });

  test("knows the model no more is told from one that refuses a request", async () => {
    const url = await listen({ "/forward_backward": json({ detail: "Model not found" }, 404) });
    await expect(gradient(url)).rejects.toBeInstanceOf(ModelLost);
  });

  test("knows a sampling session no more has lost the model, too", async () => {
    const url = await listen({
      "/create_sampling_session": json({ sampling_session_id: "base" }),
      "/asample": json({ detail: "Sampling session not found" }, 404),
    });
    expect(await sampled(url)).toBeInstanceOf(ModelLost);
  });

  test.each([
    [
      "refuses to sample",
      { "/asample": json({ detail: "sampling is switched off" }, 400) },
      "refused /asample (400): ",
    ],
    [
      "calls a sample the user's fault",
      { asample: json({ error: "no such adapter", category: "user" }) },
      "The trainer: no such adapter",
    ],
    [
      "samples more than it was asked for",
      {
        asample: json({ sequences: [{ stop_reason: "length", tokens: [1, 2, 3], logprobs: [-1, -1, -1] }] }),
      },
      "3 tokens where 2 were asked for",
    ],
    [
      "makes no sampling session",
      { "/create_sampling_session": json({ detail: "sampling is switched off" }, 422) },
      "refused /create_sampling_session (422): ",
    ],
  ] as const)("%s is at fault itself: whose call it was could do nothing", async (_, script, message) => {
    const session = { "/create_sampling_session": json({ sampling_session_id: "base" }) };
    const error = await sampled(await listen({ ...session, ...script }));
    expect(error).toMatchObject({ code: "PLATFORM_ERROR", message: expect.stringContaining(message) });
    expect(failsForGood(error)).toBe(false);
  });

  test("is never asked for what nobody can sample: that is the caller's fault", async () => {
    const url = await listen({ "/asample": json({}, 500) });
    expect(await sampled(url, { temperature: 1e-9 })).toMatchObject({
      code: "VALIDATION",
      message: "temperature is 1e-9.",
    });
    expect(await sampled(url, { prompt_T: Array(64).fill(1) })).toMatchObject({ code: "VALIDATION" });
  });

  test("knows the session no more when its base model is to be sampled has lost the model, too", async () => {
    const url = await listen({ "/create_sampling_session": json({ detail: "Session not found" }, 404) });
    expect(await sampled(url)).toBeInstanceOf(ModelLost);
  });

  test("has a model of another vocabulary is found out before anything is sent, where it tells", async () => {
    const told = await listen({
      "/get_server_capabilities": json({
        supported_models: [{ model_name: "m", max_context_length: 64, vocab_size: 9 }],
      }),
    });
    const open = async (vocabSize: number) => {
      const service = createRemoteService({ url: told, apiKey: "k", fetch, reduction: "sum", vocabSize });
      onTestFinished(() => service[Symbol.asyncDispose]());
      return await service.createModel({ folder: "m" }, LORA);
    };
    await expect(open(8)).rejects.toMatchObject({
      code: "VALIDATION",
      message: expect.stringContaining("knows 9 tokens, the model here 8"),
      hint: expect.stringContaining("trainer_model"),
    });
    expect((await open(9)).contextLength).toBe(64);
  });

  test("samples a token that the model here does not have cannot be sampled again", async () => {
    const url = await listen({
      "/create_sampling_session": json({ sampling_session_id: "base" }),
      asample: json({ sequences: [{ stop_reason: "length", tokens: [7, 8], logprobs: [-1, -1] }] }),
    });
    const error = await sampled(url);
    expect(error).toMatchObject({ code: "VALIDATION", message: expect.stringContaining("sampled token 8") });
    expect(failsForGood(error)).toBe(true);
  });

  test("is away is asked again, and who wants to know is told once", async () => {
    const url = await listen({
      "/create_session": [json({}, 503), "cut", json({}, 502), json({ session_id: "s" })],
    });
    const told: string[] = [];
    const notice = (text: string) => void told.push(text);
    await using service = createRemoteService({
      url,
      apiKey: "k",
      fetch,
      reduction: "sum",
      delay: async () => {},
      notice,
    });
    await service.createModel({ folder: "m" }, LORA);
    expect(told).toEqual([
      expect.stringMatching(/^The trainer at \S+ fails: .*; it is asked again for \d+ s\.$/),
    ]);
  });

  test("makes adapters only says so when asked for a whole model", async () => {
    const url = await listen({
      "/create_model": json({ detail: [{ loc: ["body", "lora_config"], msg: "Field required" }] }, 422),
    });
    await using service = createRemoteService({ url, apiKey: "k", fetch, reduction: "sum" });
    await expect(
      service.createModel({ folder: "m" }, { method: { type: "full" }, seed: 0 }),
    ).rejects.toMatchObject({ code: "VALIDATION", hint: expect.stringContaining("lora") });
  });
});

describe("a checkpoint's archive", () => {
  const bytes = (text: string) => new TextEncoder().encode(text);
  const FILES = new Map([
    ["adapter_config.json", bytes('{"r":4}')],
    ["adapter_model.safetensors", bytes("weights")],
  ]);
  const ARCHIVE = "/training_runs/s/checkpoints/sampler_weights/osmosis/archive";

  /** The files of a checkpoint, and what the run is told. */
  async function checkpoint(archive: readonly Answer[]) {
    const url = await listen({
      save_weights_for_sampler: json({ path: "tinker://s/sampler_weights/osmosis" }),
      save_weights: json({ path: "tinker://s/weights/osmosis" }),
      [ARCHIVE]: archive,
      "/training_runs/s/checkpoints/osmosis/archive": json({ detail: "Not Found" }, 404),
    });
    const told: string[] = [];
    await using service = createRemoteService({
      url,
      apiKey: "k",
      fetch,
      reduction: "sum",
      delay: async () => {},
      notice: (text) => void told.push(text),
    });
    const model = await service.createModel({ folder: "m" }, LORA);
    const folder = await mkdtemp(join(tmpdir(), "archive-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    await model.saveWeights(folder);
    return { files: (await readdir(folder)).sort(), told };
  }

  test("is asked for again when the trainer is busy or hangs up", async () => {
    const archive: Answer = { type: "application/x-tar", body: writeTar(FILES) };
    const { files, told } = await checkpoint([json({}, 503), "cut", archive]);
    expect(files).toEqual([...FILES.keys(), "remote-weights.json"]);
    expect(told).toEqual([]);
  });

  test.each([
    ["cannot be had", "cut", "handed out no archive"],
    ["is none", { type: "application/x-tar", body: "<html>".repeat(200) }, "is no tar archive"],
    [
      "ends too early",
      { type: "application/x-tar", body: writeTar(FILES).subarray(0, 600) },
      "ends too early",
    ],
    [
      "is packed badly",
      { type: "application/gzip", body: Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 7) },
      "cannot be read",
    ],
    [
      "has a broken configuration",
      {
        type: "application/x-tar",
        body: writeTar(new Map([...FILES, ["adapter_config.json", bytes('{"r":')]])),
      },
      "cannot be read",
    ],
    [
      "holds something else",
      { type: "application/x-tar", body: writeTar(new Map([["README", new Uint8Array(1)]])) },
      "holds no adapter",
    ],
  ] as const)("that %s costs the archive, never the run", async (_, archive, why) => {
    const { files, told } = await checkpoint([archive]);
    expect(files).toEqual(["remote-weights.json"]);
    expect(told).toEqual([expect.stringMatching(new RegExp(`${why}.*lives there`))]);
  });
});

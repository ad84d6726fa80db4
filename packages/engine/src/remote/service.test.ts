import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { decodeForwardBackward, encodeForwardBackwardOutput, TINKER_PROTOBUF } from "@osmosis/protocol";
import { afterEach, describe, expect, test } from "vitest";
import type { Datum, TrainingService } from "../service.ts";
import { createRemoteService } from "./service.ts";

type Answer = { readonly status?: number; readonly json?: unknown; readonly protobuf?: Uint8Array };
type Received = { readonly path: string; readonly type: string; readonly body: Buffer };

let server: Server | undefined;
let service: TrainingService | undefined;

afterEach(async () => {
  await service?.[Symbol.asyncDispose]();
  server?.closeAllConnections();
  await new Promise((resolve) => server?.close(resolve) ?? resolve(undefined));
  service = server = undefined;
});

/**
 * A trainer on loopback that answers what the test says, and otherwise as a good one; `received` has every request of
 * the given path.
 */
async function trainer(script: Readonly<Record<string, readonly (Answer | "cut")[]>>) {
  const received: Received[] = [];
  const left = new Map(Object.entries(script).map(([path, answers]) => [path, [...answers]]));
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const path = (request.url ?? "").replace("/api/v1", "");
    const body = Buffer.concat(chunks);
    received.push({ path, type: request.headers["content-type"] ?? "", body });
    const scripted = left.get(path)?.shift();
    if (scripted === "cut") return void request.socket.destroy();
    const { status = 200, json, protobuf } = scripted ?? { json: usual(path, body) };
    const type = protobuf === undefined ? "application/json" : TINKER_PROTOBUF;
    response.writeHead(status, { "content-type": type }).end(protobuf ?? JSON.stringify(json));
  };
  server = createServer((request, response) => void answer(request, response));
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", resolve);
  await promise;
  const address = server.address();
  const port = typeof address === "object" ? (address?.port ?? 0) : 0;
  const pauses: number[] = [];
  service = createRemoteService({
    url: `http://127.0.0.1:${port}`,
    apiKey: "tml-key",
    reduction: "sum",
    fetch,
    delay: async (milliseconds) => void pauses.push(milliseconds),
  });
  const of = (path: string) => received.filter((request) => request.path === path);
  return { service, of, pauses };
}

const LOGPROBS = { data: [-1, -2], dtype: "float32" as const, shape: [2] };
const OUTPUT = { loss_fn_output_type: "x", loss_fn_outputs: [{ logprobs: LOGPROBS }], metrics: {} };

function usual(path: string, body: Buffer): unknown {
  if (path === "/create_session") return { session_id: "s" };
  if (path === "/get_server_capabilities")
    return { supported_models: [{ model_name: "m", max_context_length: 64 }] };
  if (path !== "/retrieve_future") return { request_id: path.slice(1) };
  const { request_id: id } = JSON.parse(body.toString()) as { request_id: string };
  if (id === "create_model") return { model_id: "s:train:0" };
  if (!id.startsWith("forward")) return { metrics: { grad_norm: 2 } };
  const entropy = Number(/entropy (\d)/.exec(id)?.[1]);
  return { ...OUTPUT, metrics: entropy > 0 ? { "entropy:mean": entropy } : {} };
}

const DATUM: Datum = {
  tokens_T: [1, 2, 3],
  weights_T: [0, 0, 0.5],
  advantages_T: [0, 0, 1],
  samplerLogprobs_T: [0, 0, -2],
};
const ADAM = { learningRate: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, gradClipNorm: 0 };
const LORA = { method: { type: "lora", rank: 4, alpha: 32 }, seed: 1 } as const;

describe("a request", () => {
  test("goes on over broken connections, 429 and 503, under its own number", async () => {
    const started = { json: { request_id: "forward" } };
    const { service, of } = await trainer({
      "/forward_backward": ["cut", { status: 429 }, { status: 503 }, started],
    });
    const model = await service.createModel({ folder: "m" }, LORA);
    const result = await model.forwardBackward([DATUM], { type: "importance_sampling" });
    // One token of weight 0.5, ratio 1 and advantage 1.
    expect(result.loss).toBeCloseTo(-0.5, 6);
    expect([...(result.logprobs_B_T[0] ?? [])]).toEqual([0, 0, -2]);
    await model.optimStep(ADAM);
    const numbers = of("/forward_backward").map(({ body }) => decodeForwardBackward(body).seq_id);
    expect(numbers).toEqual([1, 1, 1, 1]);
    expect(JSON.parse(String(of("/optim_step")[0]?.body))).toMatchObject({ seq_id: 2 });
  });

  test("is JSON for a server that knows no protocol buffers, from then on", async () => {
    const { service, of } = await trainer({ "/forward_backward": [{ status: 415 }] });
    const model = await service.createModel({ folder: "m" }, LORA);
    await model.forwardBackward([DATUM], { type: "ppo", clipLow: 0.8, clipHigh: 1.2 });
    await model.forwardBackward([DATUM], { type: "cross_entropy" });
    await model.forward([DATUM], { type: "cross_entropy" });
    const [first, second, third] = of("/forward_backward");
    expect([first?.type, second?.type, third?.type]).toEqual([
      TINKER_PROTOBUF,
      "application/json",
      "application/json",
    ]);
    expect(JSON.parse(String(second?.body))).toMatchObject({
      seq_id: 1,
      forward_backward_input: { loss_fn_config: { clip_low_threshold: 0.8, clip_high_threshold: 1.2 } },
    });
    expect(JSON.parse(String(of("/forward")[0]?.body))).toMatchObject({ seq_id: 3 });
  });

  test("is cut into pieces of the size that the server takes, and merged again", async () => {
    const { service, of } = await trainer({ "/client/config": [{ json: { fwdbwd_max_chunk_len: 1 } }] });
    const model = await service.createModel({ folder: "m" }, LORA);
    const result = await model.forwardBackward([DATUM, DATUM, DATUM], { type: "cross_entropy" });
    expect(of("/forward_backward").map(({ body }) => decodeForwardBackward(body).seq_id)).toEqual([1, 2, 3]);
    expect(result.logprobs_B_T).toHaveLength(3);
    expect(result.loss).toBeCloseTo(3, 6);
    expect(result.entropy).toBeNaN();
  });

  test("that is cut has the entropy of all its sampled tokens, however they are spread over the pieces", async () => {
    const { service } = await trainer({
      "/client/config": [{ json: { fwdbwd_max_chunk_len: 1 } }],
      "/forward_backward": [1, 4].map((entropy) => ({ json: { request_id: `forward, entropy ${entropy}` } })),
    });
    const model = await service.createModel({ folder: "m" }, LORA);
    const longer = { ...DATUM, weights_T: [0, 0.5, 0.5] };
    expect((await model.forwardBackward([DATUM, longer], { type: "cross_entropy" })).entropy).toBeCloseTo(3);
  });
});

describe("a result", () => {
  test("is asked for until it is there, over 408, 500 and try_again, in JSON or protocol buffers", async () => {
    const { service, of } = await trainer({
      "/retrieve_future": [
        { json: { model_id: "s:train:0" } },
        { status: 408, json: {} },
        { json: { type: "try_again", request_id: "forward_backward", queue_state: "active" } },
        { status: 500, json: {} },
        { protobuf: encodeForwardBackwardOutput(OUTPUT) },
      ],
    });
    const model = await service.createModel({ folder: "m" }, LORA);
    const result = await model.forwardBackward([DATUM], { type: "cross_entropy" });
    expect(result.loss).toBeCloseTo(1, 6);
    expect(of("/forward_backward")).toHaveLength(1);
  });

  test("that the server has forgotten is asked for by the same request, with the same number", async () => {
    const { service, of } = await trainer({
      "/retrieve_future": [{ json: { model_id: "s:train:0" } }, { status: 410, json: {} }],
    });
    const model = await service.createModel({ folder: "m" }, LORA);
    await model.forwardBackward([DATUM], { type: "cross_entropy" });
    const [first, again] = of("/forward_backward");
    expect(again?.body).toEqual(first?.body);
  });

  test("that failed has the reason: the user's fault, or the trainer's", async () => {
    const { service } = await trainer({
      "/retrieve_future": [
        { json: { model_id: "s:train:0" } },
        { json: { error: "too long", category: "user" } },
        { json: { error: "no memory", category: "server" } },
      ],
    });
    const model = await service.createModel({ folder: "m" }, LORA);
    const run = () => model.forwardBackward([DATUM], { type: "cross_entropy" });
    await expect(run()).rejects.toMatchObject({ code: "VALIDATION", message: "The trainer: too long" });
    await expect(run()).rejects.toMatchObject({ code: "PLATFORM_ERROR", message: "The trainer: no memory" });
    expect((await run()).loss).toBeCloseTo(1, 6);
  });
});

describe("a trainer that", () => {
  test("is down is a NETWORK error, after pauses that grow to half a minute", async () => {
    const { service, pauses } = await trainer({
      "/client/config": Array.from({ length: 20 }, () => ({ status: 503 })),
    });
    const opening = service.createModel({ folder: "m" }, LORA);
    await expect(opening).rejects.toMatchObject({
      code: "NETWORK",
      message: expect.stringContaining("answers 503"),
    });
    expect(pauses[0]).toBe(250);
    expect(pauses.at(-1)).toBe(30_000);
  });

  test("refuses the key, lacks the model, or answers rubbish says so", async () => {
    const { service } = await trainer({
      "/client/config": [{ status: 401, json: {} }, { json: 7 }],
      "/get_server_capabilities": [{ json: { supported_models: [{ model_name: "other" }] } }],
    });
    const open = () => service.createModel({ folder: "m" }, LORA);
    await expect(open()).rejects.toMatchObject({ code: "AUTH_REQUIRED" });
    await expect(open()).rejects.toMatchObject({
      code: "NETWORK",
      message: expect.stringContaining("something else"),
    });
    await expect(open()).rejects.toMatchObject({
      code: "NOT_FOUND",
      hint: expect.stringContaining("It has other."),
    });
  });

  test("refuses a request takes no further ones for that model: their numbers would wait for ever", async () => {
    const { service, of } = await trainer({ "/optim_step": [{ status: 400, json: { error: "no" } }] });
    const model = await service.createModel({ folder: "m" }, LORA);
    await expect(model.optimStep(ADAM)).rejects.toMatchObject({ code: "VALIDATION" });
    await expect(model.optimStep(ADAM)).rejects.toMatchObject({ code: "PLATFORM_ERROR" });
    expect(of("/optim_step")).toHaveLength(1);
  });
});

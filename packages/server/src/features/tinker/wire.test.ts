import { zstdCompressSync } from "node:zlib";
import {
  TINKER_PROTOBUF,
  decodeForwardBackwardOutput,
  encodeForwardBackward,
  type TinkerForwardBackward,
} from "@osmosis/protocol";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { mintKey, startTrainerServer, type TrainerServer } from "./testing.ts";

vi.setConfig({ testTimeout: 120_000 });

let trainer: TrainerServer;

beforeAll(async () => {
  trainer = await startTrainerServer();
});

afterAll(() => trainer[Symbol.asyncDispose]());

async function send(
  path: string,
  body: string | Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = {},
) {
  return await fetch(`${trainer.server.url}/api/v1${path}`, {
    method: "POST",
    headers: { "x-api-key": trainer.apiKey, "content-type": "application/json", ...headers },
    body,
  });
}

async function call(path: string, json: object, headers?: Record<string, string>) {
  const response = await send(path, JSON.stringify(json), headers);
  return { status: response.status, body: z.looseObject({}).parse(await response.json()) };
}

/** Sends a request and waits for its result. */
async function result(path: string, json: object) {
  const { body } = await call(path, json);
  const { request_id } = z.object({ request_id: z.string() }).parse(body);
  return (await call("/retrieve_future", { request_id })).body;
}

async function newModel(): Promise<{ session_id: string; model_id: string }> {
  const { body } = await call("/create_session", { tags: [], user_metadata: null, sdk_version: "test" });
  const { session_id } = z.object({ session_id: z.string() }).parse(body);
  const created = await result("/create_model", {
    session_id,
    model_seq_id: 0,
    base_model: "osmosis/tiny",
    lora_config: { rank: 4, seed: 3 },
  });
  return { session_id, model_id: z.object({ model_id: z.string() }).parse(created).model_id };
}

const tensor = (data: number[], dtype: "float32" | "int64" = "float32") => ({
  data,
  dtype,
  shape: [data.length],
});

const INPUT: TinkerForwardBackward["forward_backward_input"] = {
  data: [
    {
      model_input: { chunks: [{ type: "encoded_text", tokens: [1, 2, 3, 4] }] },
      loss_fn_inputs: {
        target_tokens: tensor([2, 3, 4, 5], "int64"),
        weights: tensor([0, 0, 1, 1]),
      },
    },
  ],
  loss_fn: "cross_entropy",
};

const ADAM = { learning_rate: 0.05 };

const lossOf = (body: unknown) =>
  z.object({ metrics: z.object({ "loss:sum": z.number() }) }).parse(body).metrics["loss:sum"];

const gradNormOf = (body: unknown) =>
  z.object({ metrics: z.object({ grad_norm: z.number() }) }).parse(body).metrics.grad_norm;

const forwardBackward = (model_id: string, seq_id: number) => ({
  model_id,
  seq_id,
  forward_backward_input: INPUT,
});

describe("order", () => {
  test("requests that arrive in the wrong order run in the right one", async () => {
    const { model_id } = await newModel();
    const later = result("/forward", { model_id, seq_id: 3, forward_input: INPUT });
    const step = result("/optim_step", { model_id, seq_id: 2, adam_params: ADAM });
    const first = await result("/forward_backward", forwardBackward(model_id, 1));
    expect(gradNormOf(await step)).toBeGreaterThan(0);
    expect(lossOf(await later)).toBeLessThan(lossOf(first));
  });

  test("a repeated request is the same promise, and no second gradient", async () => {
    const [once, twice] = [await newModel(), await newModel()];
    await result("/forward_backward", forwardBackward(once.model_id, 1));
    const expected = await result("/optim_step", { model_id: once.model_id, seq_id: 2, adam_params: ADAM });
    const first = await call("/forward_backward", forwardBackward(twice.model_id, 1));
    const again = await call("/forward_backward", forwardBackward(twice.model_id, 1));
    expect(again.body["request_id"]).toBe(first.body["request_id"]);
    const step = await result("/optim_step", { model_id: twice.model_id, seq_id: 2, adam_params: ADAM });
    expect(gradNormOf(step)).toBe(gradNormOf(expected));
  });
});

test("JSON, protocol buffers and compressed protocol buffers give the same result", async () => {
  const { model_id } = await newModel();
  const json = await result("/forward", { model_id, seq_id: 1, forward_input: INPUT });
  const outputs = [];
  for (const [index, encoding] of ["identity", "zstd"].entries()) {
    const bytes = encodeForwardBackward({
      model_id,
      seq_id: 2 + index,
      forward_only: true,
      forward_backward_input: INPUT,
    });
    const sent = encoding === "zstd" ? new Uint8Array(zstdCompressSync(bytes)) : new Uint8Array(bytes);
    const started = await send("/forward_backward", sent, {
      "content-type": TINKER_PROTOBUF,
      ...(encoding === "zstd" && { "content-encoding": encoding }),
    });
    const { request_id } = z.object({ request_id: z.string() }).parse(await started.json());
    const answer = await send("/retrieve_future", JSON.stringify({ request_id }), {
      accept: TINKER_PROTOBUF,
    });
    expect(answer.headers.get("content-type")).toBe(TINKER_PROTOBUF);
    outputs.push(decodeForwardBackwardOutput(new Uint8Array(await answer.arrayBuffer())));
  }
  expect(outputs).toEqual([json, json]);
  const { logprobs } = outputs[0]?.loss_fn_outputs[0] ?? {};
  // Prompt tokens have a log probability, too, though none has a loss.
  expect(logprobs?.data.every((logprob) => logprob < 0)).toBe(true);
  expect(lossOf(json)).toBeCloseTo(-((logprobs?.data[2] ?? 0) + (logprobs?.data[3] ?? 0)), 4);
});

describe("what is refused", () => {
  test("without a key, with a foreign one, and another person's model", async () => {
    const { model_id } = await newModel();
    expect((await call("/client/config", {}, { "x-api-key": "" })).status).toBe(401);
    expect((await call("/client/config", {}, { "x-api-key": "tml-nothing" })).status).toBe(401);
    const { platform } = trainer.server;
    const { id: userId } = await platform.accounts.createUser({ email: "ada@example.org", name: "Ada" });
    const wanted = { userId, kind: "personal", name: "test", lifetimeDays: 1 } as const;
    const { token } = await platform.accounts.tokens.mint(wanted);
    const headers = { "x-api-key": await mintKey(trainer.server, token) };
    expect((await call("/get_info", { model_id }, headers)).status).toBe(404);
    expect((await call("/retrieve_future", { request_id: `${model_id}:0` }, headers)).status).toBe(410);
    expect((await call("/get_info", { model_id })).status).toBe(200);
  });

  test("rubbish, unknown losses, wrong targets and numbers that were used, each with its reason", async () => {
    const { model_id } = await newModel();
    const rubbish = await send("/forward_backward", Uint8Array.of(7, 7), { "content-type": TINKER_PROTOBUF });
    expect(rubbish.status).toBe(400);
    const packed = await send("/forward_backward", Uint8Array.of(1, 2), { "content-encoding": "zstd" });
    expect(packed.status).toBe(400);
    expect((await call("/retrieve_future", { request_id: "nothing" })).status).toBe(410);
    const refused = async (seq_id: number, forward_backward_input: object) =>
      await result("/forward_backward", { model_id, seq_id, forward_backward_input });
    expect(await refused(1, { ...INPUT, loss_fn: "dro" })).toMatchObject({ category: "user" });
    expect(await refused(2, { ...INPUT, loss_fn_config: { beta: 1 } })).toMatchObject({
      error: expect.stringContaining("no setting beta"),
    });
    const [datum] = INPUT.data;
    const skewed = { ...datum?.loss_fn_inputs, target_tokens: tensor([9, 9, 9, 9], "int64") };
    expect(await refused(3, { ...INPUT, data: [{ ...datum, loss_fn_inputs: skewed }] })).toMatchObject({
      error: expect.stringContaining("Datum 0: target_tokens[2] is not the next token"),
    });
    expect((await call("/forward_backward", forwardBackward(model_id, 0))).status).toBe(400);
    expect(await refused(5000, INPUT)).toMatchObject({ error: expect.stringContaining("the next one is 4") });
    // Failures do not stop what follows.
    expect(lossOf(await refused(4, INPUT))).toBeGreaterThan(0);
  });
});

test("weights keep their name until they are overwritten or deleted", async () => {
  const { model_id } = await newModel();
  const saved = await result("/save_weights", { model_id, seq_id: 1, path: "a" });
  expect(saved).toMatchObject({ path: `tinker://${model_id}/weights/a` });
  expect(await result("/save_weights", { model_id, seq_id: 2, path: "a" })).toMatchObject({
    category: "user",
  });
  expect(await result("/save_weights", { model_id, seq_id: 3, path: "a", overwrite: true })).toEqual(saved);
  expect((await call("/weights_info", { tinker_path: saved["path"] })).body).toMatchObject({
    base_model: "osmosis/tiny",
    lora_rank: 4,
  });
  const list = async () => {
    const url = `${trainer.server.url}/api/v1/training_runs/${model_id}/checkpoints`;
    const response = await fetch(url, { headers: { "x-api-key": trainer.apiKey } });
    return z
      .object({ checkpoints: z.array(z.looseObject({ checkpoint_id: z.string() })) })
      .parse(await response.json());
  };
  expect((await list()).checkpoints).toMatchObject([
    { checkpoint_id: "weights/a", checkpoint_type: "training" },
  ]);
  const deleted = await fetch(
    `${trainer.server.url}/api/v1/training_runs/${model_id}/checkpoints/weights/a`,
    {
      method: "DELETE",
      headers: { "x-api-key": trainer.apiKey },
    },
  );
  expect([deleted.status, await deleted.text()]).toEqual([204, ""]);
  expect((await list()).checkpoints).toEqual([]);
});

test("a session whose client is silent ends, and its models with it", async () => {
  const { session_id, model_id } = await newModel();
  trainer.server.advance(110_000);
  expect((await call("/session_heartbeat", { session_id })).status).toBe(200);
  trainer.server.advance(110_000);
  await trainer.server.platform.tinker.sweep();
  expect((await call("/get_info", { model_id })).status).toBe(200);
  trainer.server.advance(130_000);
  await trainer.server.platform.tinker.sweep();
  expect((await call("/get_info", { model_id })).status).toBe(404);
  // The engine has ended with its last session, and starts again.
  await newModel();
});

test("a result is kept for a client that has not fetched it, and a minute longer once it was sent", async () => {
  const { session_id, model_id } = await newModel();
  const { sweep } = trainer.server.platform.tinker;
  const later = async (milliseconds: number) => {
    trainer.server.advance(milliseconds);
    await call("/session_heartbeat", { session_id });
    await sweep();
  };
  const started = await call("/forward_backward", forwardBackward(model_id, 1));
  const { request_id } = z.object({ request_id: z.string() }).parse(started.body);
  await result("/optim_step", { model_id, seq_id: 2, adam_params: ADAM });
  for (let minute = 0; minute < 5; minute++) await later(60_000);
  const retrieve = () => call("/retrieve_future", { request_id });
  expect((await retrieve()).status).toBe(200);
  await later(30_000);
  expect((await retrieve()).status).toBe(200);
  await later(90_000);
  expect((await retrieve()).status).toBe(410);
  // The gradient was applied: sending the request again must not add another.
  expect(await result("/forward_backward", forwardBackward(model_id, 1))).toMatchObject({
    error: expect.stringContaining("was executed"),
    category: "user",
  });
});

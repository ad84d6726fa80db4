import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { z } from "zod";
import { startInTurn } from "./in-turn.ts";
import { createPromises, type Result } from "./promises.ts";
import { createSequence } from "./sequence.ts";
import { startTrainerServer, type TrainerServer } from "./testing.ts";

vi.setConfig({ testTimeout: 120_000 });

let trainer: TrainerServer;

beforeAll(async () => {
  trainer = await startTrainerServer();
});

afterAll(() => trainer[Symbol.asyncDispose]());

async function send(path: string, json: object) {
  return await fetch(`${trainer.server.url}/api/v1${path}`, {
    method: "POST",
    headers: { "x-api-key": trainer.apiKey, "content-type": "application/json" },
    body: JSON.stringify(json),
  });
}

async function call(path: string, json: object) {
  const response = await send(path, json);
  return { status: response.status, body: z.looseObject({}).parse(await response.json()) };
}

const Promised = z.looseObject({ model_id: z.string(), request_id: z.string() });

async function newSession(): Promise<string> {
  const { body } = await call("/create_session", {});
  return z.object({ session_id: z.string() }).parse(body).session_id;
}

test("an adapter of a rank that would fill the memory is refused, and the place is named", async () => {
  const model = { session_id: await newSession(), model_seq_id: 0, base_model: "osmosis/tiny" };
  expect(await call("/create_model", { ...model, lora_config: { rank: 1_000_000 } })).toMatchObject({
    status: 400,
    body: { code: "VALIDATION", field: "lora_config.rank" },
  });
});

test("more stop texts than can be looked for are refused", async () => {
  const request = { base_model: "osmosis/tiny", prompt: { chunks: [] } };
  for (const stop of [Array.from({ length: 1025 }, () => "x"), ["x".repeat(8193)]]) {
    expect(await call("/asample", { ...request, sampling_params: { stop } })).toMatchObject({
      status: 400,
      body: { code: "VALIDATION", field: expect.stringMatching(/^sampling_params\.stop/) },
    });
  }
});

test("a number that was used for another request is refused, and a repeated one stays what it was", async () => {
  const session_id = await newSession();
  const wanted = {
    session_id,
    model_seq_id: 0,
    base_model: "osmosis/tiny",
    lora_config: { rank: 4, seed: 1 },
  };
  const started = await call("/create_model", wanted);
  const { model_id, request_id: made } = Promised.parse(started.body);
  await call("/retrieve_future", { request_id: made });
  expect((await call("/create_model", { ...wanted, lora_config: { rank: 8 } })).status).toBe(409);
  const step = { model_id, seq_id: 1, adam_params: { learning_rate: 0.1 } };
  const first = await call("/optim_step", step);
  expect(await call("/optim_step", { ...step, adam_params: { learning_rate: 0.2 } })).toMatchObject({
    status: 409,
    body: { code: "CONFLICT", hint: expect.stringContaining("next number") },
  });
  expect((await call("/save_weights", { model_id, seq_id: 1 })).status).toBe(409);
  expect(await call("/optim_step", step)).toEqual(first);
  const { request_id } = Promised.parse(first.body);
  expect((await call("/retrieve_future", { request_id })).body).toMatchObject({ type: "optim_step" });
  const unloaded = await call("/unload_model", { model_id });
  await call("/retrieve_future", { request_id: Promised.parse(unloaded.body).request_id });
  expect(unloaded.status).toBe(200);
  expect(await call("/unload_model", { model_id })).toEqual(unloaded);
  expect((await call("/unload_model", { model_id: `${session_id}:train:9` })).status).toBe(404);
});

test("requests that wait may not fill the memory, in whatever order they come, but for the one that the others wait for", async () => {
  const now = () => new Date();
  const promises = createPromises({ now, log: () => {}, maxPending: { count: 3, bytes: 1200 } });
  const held = Promise.withResolvers<Result>();
  const modelOf = (owner: string) => ({ id: owner, session: { owner }, sequence: createSequence({ now }) });
  const [ada, bob] = [modelOf("ada"), modelOf("bob")];
  const start = (seq_id: number, { of = ada, size = 10 } = {}) =>
    startInTurn(promises, of, { seq_id, text: "x".repeat(size) } as { seq_id: number }, () => held.promise);
  const tooMuch = expect.objectContaining({ code: "RATE_LIMITED" });
  const ended = async (...numbers: number[]) => {
    const { signal } = new AbortController();
    for (const seq of numbers)
      expect(await promises.wait(`ada:${seq}`, "ada", 10_000, signal)).toMatchObject({ type: "done" });
  };
  start(1);
  // Its turn has begun with the next turn of the event loop.
  await setImmediate();
  expect(() => start(2, { size: 2000 })).toThrow(tooMuch);
  start(2);
  start(3);
  await setImmediate();
  // The next number, which comes in order, waits like all others.
  expect(() => start(4)).toThrow(tooMuch);
  // The same request is the same promise, and somebody else has a measure of his own.
  start(3);
  start(1, { of: bob });
  held.resolve({ body: {} });
  await ended(1, 2, 3);
  start(5);
  start(6);
  start(7);
  expect(() => start(8)).toThrow(tooMuch);
  start(4, { size: 2000 });
  await ended(4, 5, 6, 7);
  start(8);
  await ended(8);
});

test("whoever finds no place for a model is told who has them, and gets one when one is free", async () => {
  await using own = await startTrainerServer();
  const { platform } = own.server;
  const { tinker, owner, db } = platform;
  await db
    .insertInto("users")
    .values({ id: "bob", name: "Bob", email: "bob@example.com", email_verified: true })
    .execute();
  const make = async (session: { id: string; owner: string }, model_seq_id: number) => {
    const wanted = { session_id: session.id, model_seq_id, base_model: "osmosis/tiny" };
    const { request_id } = tinker.createModel(session.owner, wanted);
    return await tinker.retrieve(session.owner, request_id);
  };
  const sessions = [owner.id, owner.id, "bob"].map((user) => tinker.sessions.create(user));
  const [first, second, bobs] = sessions;
  if (first === undefined || second === undefined || bobs === undefined) throw new Error("no sessions");
  for (const number of [0, 1, 2, 3]) expect((await make(first, number)).type).toBe("done");
  expect(await make(first, 4)).toMatchObject({
    failure: { error: expect.stringContaining("A session trains 4 models at most.") },
  });
  for (const number of [0, 1, 2]) expect((await make(second, number)).type).toBe("done");
  expect((await make(bobs, 0)).type).toBe("done");
  const { name } = owner;
  expect(await make(bobs, 1)).toMatchObject({
    type: "failed",
    failure: {
      category: "user",
      error: `This server trains 8 models at once, and all places are taken: you 1, ${name} 7. Unload one, or end its session.`,
    },
  });
  const cy = tinker.sessions.create("cy");
  expect(await make(cy, 0)).toMatchObject({
    failure: { error: expect.stringMatching(/taken: Bob 1, \w+ 7\. Ask one of them to unload a model/) },
  });
  await tinker.sessions.close(second);
  expect((await make(bobs, 2)).type).toBe("done");
});

test("weights that were handed to samplers do not fill the disk, whatever becomes of their models", async () => {
  const { tinker, owner, config } = trainer.server.platform;
  const session = tinker.sessions.create(owner.id);
  const volatile = join(config.dataFolder, "tinker/volatile");
  const before = (await readdir(volatile).catch(() => [])).length;
  const done = async ({ request_id }: { request_id: string }) => {
    expect(await tinker.retrieve(owner.id, request_id)).toMatchObject({ type: "done" });
  };
  for (let model_seq_id = 0; model_seq_id < 5; model_seq_id++) {
    const wanted = { session_id: session.id, model_seq_id, base_model: "osmosis/tiny" };
    const started = tinker.createModel(owner.id, wanted);
    await done(started);
    const model_id = started.model_id ?? "";
    for (let seq_id = 1; seq_id <= 9; seq_id++)
      await done(tinker.saveForSampler(owner.id, { model_id, seq_id }));
    await done(tinker.unloadModel(owner.id, model_id));
  }
  expect(session.samplings.size).toBe(32);
  expect((await readdir(volatile)).length - before).toBe(32);
  await tinker.sessions.close(session);
  expect((await readdir(volatile)).length - before).toBe(0);
});

test("whoever opens too many sessions is told when to try again", async () => {
  const answers = [];
  while (answers.at(-1)?.status !== 429 && answers.length < 100)
    answers.push(await send("/create_session", {}));
  expect(answers.at(-1)?.status).toBe(429);
  expect(answers.at(-1)?.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
});

import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { z } from "zod";
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

test("whoever opens too many sessions is told when to try again", async () => {
  const answers = [];
  while (answers.at(-1)?.status !== 429 && answers.length < 100)
    answers.push(await send("/create_session", {}));
  expect(answers.at(-1)?.status).toBe(429);
  expect(answers.at(-1)?.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
});

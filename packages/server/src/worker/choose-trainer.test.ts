import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createEmbeddedService } from "@osmosis/engine";
import { TrainingRunConfig, type ModelAssignment, type TrainingJob } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { startTrainerServer, type TrainerServer } from "../features/tinker/testing.ts";
import { openSamplerOf, openTrainer } from "./choose-trainer.ts";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let trainer: TrainerServer;
let root = "";
const notices: string[] = [];
beforeAll(async () => {
  trainer = await startTrainerServer();
  root = await mkdtemp(join(tmpdir(), "osmosis-choose-"));
});
afterAll(async () => {
  await trainer[Symbol.asyncDispose]();
  await rm(root, { recursive: true });
});

const parts = {
  tools: { openService: async () => createEmbeddedService({ threads: 1 }), fetch },
  notice: (text: string) => void notices.push(text),
  signal: new AbortController().signal,
};
const LORA = { method: { type: "lora", rank: 4, alpha: 32 }, seed: 1 } as const;
const REQUEST = {
  conversation: "c",
  prompt_T: [1, 2],
  maxTokens: 4,
  temperature: 0,
  topP: 1,
  stopTokens: [],
  seed: 0,
};

const files = (...names: readonly string[]) =>
  names.map((name) => ({ name, url: "/", size_bytes: 1, sha256: "0" }));
const SMALL = files("config.json", "tokenizer.json");

const MODEL: Extract<ModelAssignment, { type: "local" }> = {
  type: "local",
  name: "osmosis/tiny",
  base_model: "osmosis/tiny",
  base_files: [...SMALL, ...files("model.safetensors")],
  adapter_files: [],
};
const WEIGHTLESS = { ...MODEL, name: "lab/tiny", base_model: "lab/tiny", base_files: SMALL };

type Job = TrainingJob & { readonly model: typeof MODEL };

function jobOf(advanced: object, more: Partial<Job> = {}): Job {
  return {
    kind: "training",
    run_id: "r",
    run_name: "r",
    attempt: 1,
    lease_token: "t",
    lease_seconds: 30,
    rollout: "r",
    entrypoint: "main.ts",
    commit_sha: "0".repeat(40),
    env: {},
    secrets: {},
    model: MODEL,
    row_count: 1,
    config: TrainingRunConfig.parse({
      experiment: { rollout: "r", entrypoint: "main.ts", model_path: "osmosis/tiny", dataset: "d" },
      secrets: { required: ["TRAINER_KEY"] },
      advanced,
    }),
    total_steps: 1,
    committed_steps: 0,
    past_steps: [],
    state_files: [],
    ...more,
  };
}

const open = (job: Job) => openTrainer(job, { folder: trainer.folder }, parts);

test("a run trains at the trainer that it names, with its own key, by the folder of this worker", async () => {
  const job = jobOf(
    { trainer: trainer.server.url, trainer_api_key: "TRAINER_KEY", trainer_reduction: "sum" },
    { secrets: { TRAINER_KEY: trainer.apiKey } },
  );
  await using service = await open(job);
  await using model = await service.createModel({ folder: trainer.folder }, LORA);
  expect((await model.sample(REQUEST)).tokens_T.length).toBeGreaterThan(0);
  expect(notices.join("\n")).toContain(`Training at ${trainer.server.url}`);
  expect(notices.join("\n")).not.toContain(trainer.apiKey);
});

test("without a choice of the run the platform's trainer is used, and `embedded` is the engine of the worker", async () => {
  const platform = { trainer: { url: trainer.server.url, api_key: trainer.apiKey } };
  await using service = await open(jobOf({ trainer_reduction: "sum" }, platform));
  await using model = await service.createModel({ folder: trainer.folder }, LORA);
  await using engine = await open(jobOf({ trainer: "embedded" }, platform));
  await using own = await engine.createModel({ folder: trainer.folder }, LORA);
  expect((await model.sample(REQUEST)).tokens_T).toEqual((await own.sample(REQUEST)).tokens_T);
});

test("the platform's key never goes to an address that a run names", async () => {
  const job = jobOf(
    { trainer: `${trainer.server.url}/`, trainer_reduction: "sum" },
    { trainer: { url: "http://127.0.0.1:1", api_key: trainer.apiKey } },
  );
  await using service = await open(job);
  await expect(service.createModel({ folder: trainer.folder }, LORA)).rejects.toMatchObject({
    code: "AUTH_REQUIRED",
  });
});

test("what a trainer by URL cannot do, and a missing key, are said before anything is rolled out", async () => {
  const trainerUrl = { trainer: trainer.server.url };
  const platforms = { trainer: { url: trainer.server.url } };
  await expect(open(jobOf({ method: "full" }, platforms))).rejects.toMatchObject({
    code: "VALIDATION",
    message: expect.stringContaining('[advanced].method must be "lora" with a trainer by URL (http://'),
    hint: expect.stringContaining('trainer = "embedded"'),
  });
  await expect(open(jobOf({ rollout_workers: 2 }, platforms))).rejects.toMatchObject({
    code: "VALIDATION",
    message: expect.stringContaining("[advanced].rollout_workers must be 1"),
  });
  await expect(open(jobOf({ ...trainerUrl, trainer_api_key: "TRAINER_KEY" }))).rejects.toMatchObject({
    code: "VALIDATION",
    hint: expect.stringContaining("TRAINER_KEY"),
  });
});

type SamplingJob = Parameters<typeof openSamplerOf>[0];

/** What a job samples, greedily, from a folder of this worker. */
async function sampled(job: Omit<SamplingJob, "env">, source: { folder: string; adapter?: string }) {
  await using opened = new AsyncDisposableStack();
  const sampler = await openSamplerOf({ env: {}, ...job }, source, { ...parts, opened });
  return (await sampler.sample(REQUEST)).tokens_T;
}

test("a checkpoint with weights is sampled here, one without them, or without a base, where they are", async () => {
  const secrets = { TRAINER_KEY: trainer.apiKey };
  const job = jobOf(
    { trainer: trainer.server.url, trainer_api_key: "TRAINER_KEY", trainer_reduction: "sum" },
    { secrets },
  );
  await using service = await open(job);
  await using model = await service.createModel({ folder: trainer.folder }, LORA);
  const adapter = join(root, "checkpoint");
  await model.saveWeights(adapter);
  const expected = (await model.sample(REQUEST)).tokens_T;
  const source = { folder: trainer.folder, adapter };
  const reference = files("remote-weights.json");
  const adapter_files = [...reference, ...files("adapter_model.safetensors")];
  const of = (checkpoint: typeof MODEL) => ({
    secrets,
    trainer_choice: {},
    model: { ...checkpoint, name: "run-step-1" },
  });
  notices.length = 0;
  expect(await sampled(of({ ...MODEL, adapter_files }), source)).toEqual(expected);
  expect(notices).toEqual([]);
  expect(await sampled(of({ ...WEIGHTLESS, adapter_files }), source)).toEqual(expected);
  expect(notices.join()).toContain("which holds the weights");
  await rm(join(adapter, "adapter_model.safetensors"));
  const away = of({ ...MODEL, adapter_files: reference });
  expect(await sampled(away, source)).toEqual(expected);
  await expect(sampled({ ...away, secrets: {} }, source)).rejects.toMatchObject({
    code: "VALIDATION",
    hint: expect.stringContaining("TRAINER_KEY"),
  });
  await writeFile(join(adapter, "remote-weights.json"), "{");
  await expect(sampled(away, source)).rejects.toMatchObject({ code: "VALIDATION" });
});

test("a base model is sampled at the trainer that is named; without weights here at the platform's, and never by the engine", async () => {
  const source = { folder: trainer.folder };
  const platform = { url: trainer.server.url, api_key: trainer.apiKey };
  const trainer_model = "osmosis/tiny";
  const secrets = { TRAINER_KEY: trainer.apiKey };
  const here = { model: MODEL, secrets: {}, trainer: platform, trainer_choice: {} };
  notices.length = 0;
  const expected = await sampled(here, source);
  expect(notices).toEqual([]);
  const choice = { trainer: trainer.server.url, trainer_api_key: "TRAINER_KEY" };
  expect(await sampled({ model: MODEL, secrets, trainer_choice: choice }, source)).toEqual(expected);
  expect(notices).toEqual([`Sampling at ${trainer.server.url}, which holds the weights`]);
  const away = { ...here, model: WEIGHTLESS };
  expect(await sampled({ ...away, trainer_choice: { trainer_model } }, source)).toEqual(expected);
  const refusal = { code: "VALIDATION", message: expect.stringContaining("lab/tiny has no weights here") };
  const embedded = { trainer: "embedded" as const, trainer_model };
  await expect(sampled({ ...away, trainer_choice: embedded }, source)).rejects.toMatchObject(refusal);
  await expect(sampled({ model: WEIGHTLESS, secrets: {}, trainer_choice: {} }, source)).rejects.toMatchObject(
    refusal,
  );
});

test("a model without weights here is trained at a trainer by URL only, and its checkpoint where that one is", async () => {
  const secrets = { TRAINER_KEY: trainer.apiKey };
  const settings = { trainer_model: "osmosis/tiny", trainer_reduction: "sum" };
  const refusal = { code: "VALIDATION", message: expect.stringContaining("has no weights here") };
  await expect(open(jobOf(settings, { model: WEIGHTLESS }))).rejects.toMatchObject(refusal);
  await expect(
    open(jobOf({ ...settings, trainer: "embedded" }, { model: WEIGHTLESS })),
  ).rejects.toMatchObject(refusal);
  await expect(open(jobOf({}, { teacher: WEIGHTLESS }))).rejects.toMatchObject(refusal);
  const named = { ...settings, trainer: trainer.server.url, trainer_api_key: "TRAINER_KEY" };
  await using service = await open(jobOf(named, { model: WEIGHTLESS, secrets }));
  await using model = await service.createModel({ folder: trainer.folder }, LORA);
  const adapter = join(root, "further");
  await model.saveWeights(adapter);
  const checkpoint = { ...WEIGHTLESS, name: "run-step-1", adapter_files: files("adapter_model.safetensors") };
  const job = jobOf({ trainer_reduction: "sum" }, { model: checkpoint, secrets });
  await using again = await openTrainer(job, { folder: trainer.folder, adapter }, parts);
  await using further = await again.createModel({ folder: trainer.folder, adapter }, LORA);
  expect((await further.sample(REQUEST)).tokens_T).toEqual((await model.sample(REQUEST)).tokens_T);
  const whole = { ...MODEL, name: "run-step-1" };
  await expect(open(jobOf(named, { model: whole, secrets }))).rejects.toThrow("is a whole model");
});

test("a run that samples while it trains says what the trainer has to be able to do", async () => {
  const textOf = async (advanced: object) => {
    notices.length = 0;
    await using _ = await open(jobOf({ trainer: trainer.server.url, ...advanced }));
    return notices.join("\n");
  };
  expect(await textOf({ asynchronous: true })).toMatch(/samples while it trains: .*asynchronous = false/);
  expect(await textOf({ asynchronous: true, max_staleness: 0 })).not.toContain("samples while it trains");
  expect(await textOf({})).not.toContain("samples while it trains");
});

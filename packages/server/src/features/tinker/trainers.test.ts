/** One suite for three trainers: the engine of this machine, the same behind our own server, and a real SkyRL server. */
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  createEmbeddedService,
  createRemoteService,
  initialiseModel,
  measureConvention,
  parseModelConfig,
  writeSafetensors,
  type AdamParams,
  type Datum,
  type TrainableModel,
  type TrainingService,
} from "@osmosis/engine";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { startTestServer } from "../../testing.ts";
import { mintKey } from "./testing.ts";
import { startSkyrl } from "./testing-skyrl.ts";

/** A Python that has the package `skyrl`, with its extras `jax` and `tinker`. */
const PYTHON = process.env["OSMOSIS_TEST_SKYRL_PYTHON"] ?? "";
const hasSkyrl = existsSync(PYTHON);
if (!hasSkyrl) {
  process.stderr.write(
    "SkyRL is not tested: set OSMOSIS_TEST_SKYRL_PYTHON to a Python that has the package skyrl.\n",
  );
}

/** Random weights, in 32 bits because JAX multiplies nothing smaller on a CPU, and a real tokenizer. */
const CONFIG = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 512,
  hidden_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  head_dim: 16,
  intermediate_size: 64,
  hidden_act: "silu",
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  attention_bias: false,
  mlp_bias: false,
  tie_word_embeddings: true,
  max_position_embeddings: 128,
  torch_dtype: "float32",
};

const TOKENIZER = join(import.meta.dirname, "../../../../engine/fixtures/chatml");
const ADAM: AdamParams = {
  learningRate: 0.01,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};
const METHOD = { type: "lora", rank: 8, alpha: 32 } as const;

vi.setConfig({ testTimeout: 600_000, hookTimeout: 300_000 });

const stack = new AsyncDisposableStack();
const notices: string[] = [];
const trainers = new Map<string, { readonly service: TrainingService; readonly folder: string }>();

beforeAll(async () => {
  const root = await mkdtemp(join(tmpdir(), "osmosis-trainers-"));
  stack.defer(() => rm(root, { recursive: true, force: true }));
  const folder = join(root, "tiny");
  await mkdir(folder);
  await writeFile(join(folder, "config.json"), JSON.stringify(CONFIG));
  for (const name of await readdir(TOKENIZER)) await copyFile(join(TOKENIZER, name), join(folder, name));
  const weights = initialiseModel(parseModelConfig(CONFIG), 1);
  // An adapter moves what comes before the head, and the freshly made head has no say.
  const head = weights.get("model.embed_tokens.weight");
  if (head !== undefined) head.data.forEach((value, at) => (head.data[at] = 14 * value));
  await writeSafetensors(join(folder, "model.safetensors"), weights);
  trainers.set("embedded", { service: stack.use(createEmbeddedService({ threads: 1 })), folder });
  const server = stack.use(await startTestServer({ config: { modelsFolder: root } }));
  const options = { fetch, contextLength: 128, notice: (text: string) => void notices.push(text) };
  const apiKey = await mintKey(server);
  const own = stack.use(createRemoteService({ ...options, url: server.url, apiKey }));
  trainers.set("osmosis", { service: own, folder: "osmosis/tiny" });
  if (!hasSkyrl) return;
  const { url } = stack.use(await startSkyrl(PYTHON, folder));
  trainers.set("skyrl", {
    service: stack.use(createRemoteService({ ...options, url, apiKey: "tml-none" })),
    folder,
  });
});

afterAll(() => stack.disposeAsync());

async function open(name: string): Promise<TrainableModel> {
  const { service, folder } = trainers.get(name)!;
  return await service.createModel({ folder }, { method: METHOD, seed: 7 });
}

/** Sequences of different lengths, with a prompt and weights that differ. */
const DATA: readonly Datum[] = [4, 7, 12].map((length, index) => {
  const tokens_T = Array.from({ length }, (_, t) => (5 * t + 3 * index) % 300);
  return {
    tokens_T,
    weights_T: tokens_T.map((_, t) => (t < 2 ? 0 : 0.1 + 0.02 * t)),
    advantages_T: tokens_T.map(() => (index % 2 === 0 ? 1 : -0.5)),
    samplerLogprobs_T: tokens_T.map((_, t) => (t < 2 ? 0 : -6.2)),
  };
});

describe.each(["embedded", "osmosis", "skyrl"])("%s", (name) => {
  const check = test.skipIf(name === "skyrl" && !hasSkyrl);

  check("the base model has the same log probabilities", async () => {
    await using reference = await open("embedded");
    await using model = await open(name);
    const expected = await reference.forward(DATA, { type: "importance_sampling" });
    const result = await model.forward(DATA, { type: "importance_sampling" });
    expect(result.loss).toBeCloseTo(expected.loss, 3);
    for (const [index, row] of expected.logprobs_B_T.entries())
      for (const [t, value] of row.entries()) expect(result.logprobs_B_T[index]?.[t]).toBeCloseTo(value, 3);
  });

  check("its gradient is the plain sum of weighted losses, whatever the trainer does by itself", async () => {
    await using model = await open(name);
    expect(await measureConvention(model)).toMatchObject({ reduction: "sum" });
    await using other = await open(name);
    const norm = async (data_B: readonly Datum[], type: "cross_entropy" | "importance_sampling") => {
      await other.forwardBackward(data_B, { type });
      return (await other.optimStep({ ...ADAM, learningRate: 0 })).gradNorm;
    };
    for (const type of ["cross_entropy", "importance_sampling"] as const) {
      const [short] = DATA;
      const once = await norm([short!], type);
      const twice = await norm([short!, short!], type);
      const weighted = await norm(
        [{ ...short!, weights_T: short!.weights_T.map((weight) => 3 * weight) }],
        type,
      );
      expect(twice / once).toBeCloseTo(2, 2);
      expect(weighted / once).toBeCloseTo(3, 2);
    }
  });

  check("a policy learns what is rewarded, by group-relative advantages", async () => {
    await using model = await open(name);
    const rewards: number[] = [];
    await model.syncSampler();
    for (let step = 0; step < 12; step++) {
      const samples = await Promise.all(
        Array.from({ length: 32 }, (_, index) =>
          model.sample({
            conversation: `${step} ${index}`,
            prompt_T: [1, 2, 3],
            maxTokens: 3,
            temperature: 1,
            topP: 1,
            stopTokens: [],
            seed: 100 * step + index,
          }),
        ),
      );
      const reward_B = samples.map(({ tokens_T }) => tokens_T.filter((token) => token % 4 === 1).length / 3);
      const mean = reward_B.reduce((sum, reward) => sum + reward, 0) / reward_B.length;
      rewards.push(mean);
      const data = samples.map(({ tokens_T, logprobs_T }, index) => ({
        tokens_T: [1, 2, 3, ...tokens_T],
        weights_T: [0, 0, 0, ...tokens_T.map(() => 1 / 96)],
        advantages_T: [0, 0, 0, ...tokens_T.map(() => (reward_B[index] ?? 0) - mean)],
        samplerLogprobs_T: [0, 0, 0, ...logprobs_T],
      }));
      const result = await model.forwardBackward(data, { type: "ppo", clipLow: 0.8, clipHigh: 1.28 });
      // Sampler and trainer agree about what was sampled.
      expect(result.logprobs_B_T[0]?.[3]).toBeCloseTo(samples[0]?.logprobs_T[0] ?? 0, 2);
      await model.optimStep(ADAM);
      expect(await model.syncSampler()).toBe(step + 1);
    }
    process.stderr.write(`${name}: ${rewards.map((reward) => reward.toFixed(2)).join(" ")}\n`);
    expect(rewards.at(-1)).toBeGreaterThan((rewards[0] ?? 1) + 0.3);
  });

  check("continued from a saved state equals never having stopped", async () => {
    const root = await mkdtemp(join(tmpdir(), "osmosis-trainers-"));
    try {
      await using model = await open(name);
      const step = async (one: TrainableModel) => {
        const { loss } = await one.forwardBackward(DATA, { type: "cross_entropy" });
        await one.optimStep(ADAM);
        return loss;
      };
      await step(model);
      await model.saveState(join(root, "state"));
      const expected = [await step(model), await step(model)];
      await using resumed = await open(name);
      await resumed.loadState(join(root, "state"));
      expect([await step(resumed), await step(resumed)]).toEqual(expected);
    } finally {
      await rm(root, { recursive: true });
    }
  });

  check("a checkpoint is an adapter that the embedded engine opens, with the same numbers", async () => {
    const root = await mkdtemp(join(tmpdir(), "osmosis-trainers-"));
    try {
      await using model = await open(name);
      await model.forwardBackward(DATA, { type: "cross_entropy" });
      await model.optimStep(ADAM);
      await model.saveWeights(root);
      const { logprobs_B_T: expected } = await model.forward(DATA, { type: "cross_entropy" });
      const { service, folder } = trainers.get("embedded")!;
      await using scorer = await service.openScorer({ folder, adapter: root });
      const scored = await scorer.logprobs(DATA);
      for (const [index, row] of expected.entries())
        for (const [t, value] of row.entries()) expect(scored[index]?.[t]).toBeCloseTo(value, 3);
    } finally {
      await rm(root, { recursive: true });
    }
  });

  check("a frozen model tells the log probabilities of a sequence", async () => {
    const { service, folder } = trainers.get(name)!;
    await using scorer = await service.openScorer({ folder });
    await using model = await open("embedded");
    const expected = await model.forward(DATA, { type: "cross_entropy" });
    const scored = await scorer.logprobs(DATA);
    for (const [index, row] of expected.logprobs_B_T.entries())
      for (const [t, value] of row.entries()) expect(scored[index]?.[t]).toBeCloseTo(value, 3);
  });
});

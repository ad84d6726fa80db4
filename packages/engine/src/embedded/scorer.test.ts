import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parseModelConfig } from "../model-config.ts";
import { initialiseModel } from "../model/parameters.ts";
import { writeSafetensors } from "../safetensors.ts";
import type { Datum, TrainableModel, TrainingService } from "../service.ts";
import { createEmbeddedService } from "./service.ts";

const CONFIG = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 23,
  hidden_size: 16,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  intermediate_size: 24,
  tie_word_embeddings: true,
  max_position_embeddings: 32,
};
const ADAM = {
  learningRate: 1e-2,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  weightDecay: 0,
  gradClipNorm: 1,
};
const CROSS_ENTROPY = { type: "cross_entropy" } as const;

let root = "";
let base = "";
let service: TrainingService;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "osmosis-scorer-"));
  base = join(root, "base");
  await mkdir(base);
  await writeFile(join(base, "config.json"), JSON.stringify(CONFIG));
  await writeFile(join(base, "tokenizer.json"), "{}");
  await writeSafetensors(join(base, "model.safetensors"), initialiseModel(parseModelConfig(CONFIG), 1));
  service = createEmbeddedService({ threads: 2 });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await rm(root, { recursive: true });
});

const DATA: readonly Datum[] = [6, 9, 7].map((length, seed) => {
  const tokens_T = Array.from({ length }, (_, t) => (t * t + 3 * seed + 1) % 23);
  const zeros = tokens_T.map(() => 0);
  return {
    tokens_T,
    weights_T: tokens_T.map((_, t) => (t < 2 ? 0 : 0.5)),
    advantages_T: zeros,
    samplerLogprobs_T: zeros,
  };
});

async function trainSome(model: TrainableModel): Promise<void> {
  for (let step = 0; step < 5; step++) {
    await model.forwardBackward(DATA, CROSS_ENTROPY);
    await model.optimStep(ADAM);
  }
}

test("a scorer finds what the model found before it was trained, and stays with it", async () => {
  await using model = await service.createModel({ folder: base }, { method: { type: "full" }, seed: 0 });
  await using scorer = await service.openScorer({ folder: base });
  const options = { temperature: 0.7 };
  const { logprobs_B_T: before } = await model.forward(DATA, CROSS_ENTROPY, options);
  expect(await scorer.logprobs(DATA, options)).toEqual(before);
  await trainSome(model);
  expect(await scorer.logprobs(DATA, options)).toEqual(before);
  const { logprobs_B_T: after } = await model.forward(DATA, CROSS_ENTROPY, options);
  expect(after).not.toEqual(before);
});

test("a scorer of an adapter finds what the trained model finds", async () => {
  const lora = { type: "lora", rank: 4, alpha: 8 } as const;
  await using model = await service.createModel({ folder: base }, { method: lora, seed: 0 });
  await trainSome(model);
  const adapter = join(root, "adapter");
  await mkdir(adapter);
  await model.saveWeights(adapter);
  await using scorer = await service.openScorer({ folder: base, adapter });
  const { logprobs_B_T: trained } = await model.forward(DATA, CROSS_ENTROPY);
  for (const [b, found_T] of (await scorer.logprobs(DATA)).entries()) {
    for (const [t, logprob] of found_T.entries()) expect(logprob).toBeCloseTo(trained[b]?.[t] ?? NaN, 5);
  }
});

test("without a mask every token but the first is scored, with one only what it names", async () => {
  await using scorer = await service.openScorer({ folder: base });
  const tokens_T = [4, 5, 6, 7];
  const [whole = []] = await scorer.logprobs([{ tokens_T }]);
  const [part] = await scorer.logprobs([{ tokens_T, weights_T: [1, 0, 1, 0] }]);
  expect([...whole].map((logprob) => logprob < 0)).toEqual([false, true, true, true]);
  expect(part).toEqual(Float32Array.of(0, 0, whole[2] ?? NaN, 0));
  expect(await scorer.logprobs([])).toEqual([]);
});

test("a sequence that the model cannot read is refused by name", async () => {
  await using scorer = await service.openScorer({ folder: base });
  const long = Array.from({ length: 33 }, () => 1);
  await expect(scorer.logprobs([{ tokens_T: [1, 2] }, { tokens_T: long }])).rejects.toThrow(
    "Datum 1: 33 tokens exceed the context of 32.",
  );
  await expect(scorer.logprobs([{ tokens_T: [1, 23] }])).rejects.toMatchObject({ code: "VALIDATION" });
});

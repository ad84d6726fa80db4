import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { initialiseModel } from "../model/parameters.ts";
import { parseModelConfig } from "../model-config.ts";
import { readSafetensors, writeSafetensors } from "../safetensors.ts";
import type { AdamParams, Datum, TrainableModel, TrainMethod, TrainingService } from "../service.ts";
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
const ADAM: AdamParams = {
  learningRate: 1e-2,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  weightDecay: 0.01,
  gradClipNorm: 1,
};
const FULL: TrainMethod = { type: "full" };
const LORA: TrainMethod = { type: "lora", rank: 4, alpha: 8 };
const CROSS_ENTROPY = { type: "cross_entropy" } as const;

let root = "";
let base = "";
let service: TrainingService;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "osmosis-embedded-"));
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

/** Counting upwards from several numbers; the first three tokens are a prompt. */
const DATA: readonly Datum[] = Array.from({ length: 6 }, (_, start) => {
  const tokens_T = Array.from({ length: 8 + (start % 3) }, (_, t) => (t < 2 ? 1 + t : (start + t) % 23));
  return {
    tokens_T,
    weights_T: tokens_T.map((_, t) => (t < 3 ? 0 : 0.05)),
    advantages_T: tokens_T.map(() => 0),
    samplerLogprobs_T: tokens_T.map(() => 0),
  };
});

async function trainSteps(model: TrainableModel, steps: number): Promise<number[]> {
  const losses: number[] = [];
  for (let step = 0; step < steps; step++) {
    losses.push((await model.forwardBackward(DATA, CROSS_ENTROPY)).loss);
    expect((await model.optimStep(ADAM)).updated).toBe(true);
  }
  return losses;
}

test.each([
  ["attention", "self_attn"],
  ["feed_forward", "mlp"],
] as const)("an adapter of %s layers leaves the others as they are", async (layers, trained) => {
  await using model = await service.createModel({ folder: base }, { method: { ...LORA, layers }, seed: 7 });
  const losses = await trainSteps(model, 4);
  expect(losses[3]).toBeLessThan(losses[0] ?? 0);
  const folder = join(root, `adapter-${layers}`);
  await model.saveWeights(folder);
  const adapter = await readSafetensors(join(folder, "adapter_model.safetensors"));
  for (const [name, { data }] of adapter) {
    expect([name, data.some((value) => value !== 0)]).toEqual([name, name.includes(`.${trained}.`)]);
  }
});

describe.each([
  ["full fine-tuning", FULL],
  ["an adapter", LORA],
] as const)("%s", (name, method) => {
  const open = () => service.createModel({ folder: base }, { method, seed: 7 });

  test("learns to count", async () => {
    // An adapter learns little on a model of random weights, whose embedding and head stay random.
    const share = method.type === "full" ? 0.3 : 0.95;
    await using model = await open();
    const losses = await trainSteps(model, 40);
    expect(losses.at(-1)).toBeLessThan((losses[0] ?? 0) * share);
  });

  test("continued from a saved state equals never having stopped, bit for bit", async () => {
    const folder = join(root, `state of ${name}`);
    await using uninterrupted = await open();
    await trainSteps(uninterrupted, 3);
    await uninterrupted.saveState(folder);
    const expected = await trainSteps(uninterrupted, 3);

    await using second = createEmbeddedService({ threads: 1 });
    await using resumed = await second.createModel({ folder: base }, { method, seed: 99 });
    await resumed.loadState(folder);
    expect(await trainSteps(resumed, 3)).toEqual(expected);

    const [left, right] = [join(root, `left ${name}`), join(root, `right ${name}`)];
    await uninterrupted.saveWeights(left);
    await resumed.saveWeights(right);
    const file = method.type === "full" ? "model.safetensors" : "adapter_model.safetensors";
    expect((await readFile(join(right, file))).equals(await readFile(join(left, file)))).toBe(true);
  });

  test("saved weights open again as the same model", async () => {
    const folder = join(root, `weights of ${name}`);
    await using model = await open();
    await trainSteps(model, 5);
    await model.saveWeights(folder);
    const expected = await model.forward(DATA, CROSS_ENTROPY);
    const source = method.type === "full" ? { folder } : { folder: base, adapter: folder };
    await using reopened = await service.createModel(source, { method, seed: 0 });
    expect(await reopened.forward(DATA, CROSS_ENTROPY)).toEqual(expected);
    await using merged = await service.createModel(source, { method: FULL, seed: 0 });
    expect((await merged.forward(DATA, CROSS_ENTROPY)).loss).toBeCloseTo(expected.loss, 5);
  });
});

test("an adapter leaves the base model alone and changes nothing before its first step", async () => {
  await using plain = await service.createModel({ folder: base }, { method: FULL, seed: 0 });
  await using adapted = await service.createModel({ folder: base }, { method: LORA, seed: 0 });
  const [a, b] = [await plain.forward(DATA, CROSS_ENTROPY), await adapted.forward(DATA, CROSS_ENTROPY)];
  expect(b).toEqual(a);
});

test("adapter tensors carry PEFT's names", async () => {
  const folder = join(root, "peft names");
  await using model = await service.createModel({ folder: base }, { method: LORA, seed: 0 });
  await model.saveWeights(folder);
  const tensors = await readSafetensors(join(folder, "adapter_model.safetensors"));
  expect(tensors.size).toBe(2 * 7 * CONFIG.num_hidden_layers);
  expect(tensors.get("base_model.model.model.layers.1.mlp.down_proj.lora_A.weight")?.shape).toEqual([4, 24]);
});

test("gradients of several calls add up", async () => {
  await using once = await service.createModel({ folder: base }, { method: FULL, seed: 0 });
  await using twice = await service.createModel({ folder: base }, { method: FULL, seed: 0 });
  await once.forwardBackward(DATA, CROSS_ENTROPY);
  await twice.forwardBackward(DATA.slice(0, 2), CROSS_ENTROPY);
  await twice.forwardBackward(DATA.slice(2), CROSS_ENTROPY);
  const [a, b] = [await once.optimStep(ADAM), await twice.optimStep(ADAM)];
  expect(b.gradNorm).toBeCloseTo(a.gradNorm, 5);
});

test("a gradient that is not finite changes nothing", async () => {
  await using model = await service.createModel({ folder: base }, { method: FULL, seed: 0 });
  const before = await model.forward(DATA, CROSS_ENTROPY);
  const exploding = DATA.map((datum) => ({ ...datum, weights_T: datum.weights_T.map(() => 3e38) }));
  await model.forwardBackward(exploding, CROSS_ENTROPY);
  expect((await model.optimStep(ADAM)).updated).toBe(false);
  expect(await model.forward(DATA, CROSS_ENTROPY)).toEqual(before);
});

test("data that the model cannot take is refused by name", async () => {
  await using model = await service.createModel({ folder: base }, { method: FULL, seed: 0 });
  const [datum] = DATA;
  const broken = (change: Partial<Datum>) =>
    model.forwardBackward([...DATA, { ...datum!, ...change }], CROSS_ENTROPY);
  await expect(broken({ tokens_T: datum!.tokens_T.with(1, 23) })).rejects.toThrow(
    "Datum 6: token 23 at position 1 is outside the vocabulary of 23.",
  );
  await expect(broken({ weights_T: [1] })).rejects.toThrow("Datum 6: weights_T has 1 entries for 8 tokens.");
  await expect(broken({ advantages_T: datum!.advantages_T.with(2, Number.NaN) })).rejects.toThrow(
    "Datum 6: advantages_T[2] is NaN.",
  );
});

const GREEDY = { prompt_T: [1, 2, 3], maxTokens: 6, temperature: 0, topP: 1, stopTokens: [], seed: 0 };

describe.each([
  ["full fine-tuning", FULL],
  ["an adapter", LORA],
] as const)("sampling during %s", (_, method) => {
  test("sees new weights only once they are synced, and agrees with the trainer on them", async () => {
    await using model = await service.createModel({ folder: base }, { method, seed: 3 });
    const before = await model.sample({ ...GREEDY, conversation: "a" });
    await trainSteps(model, 10);
    expect(await model.sample({ ...GREEDY, conversation: "b" })).toEqual(before);
    expect(await model.syncSampler()).toBe(10);
    const after = await model.sample({ ...GREEDY, conversation: "c" });
    expect([before.weightsVersion, after.weightsVersion]).toEqual([0, 10]);
    expect(after.logprobs_T).not.toEqual(before.logprobs_T);

    const tokens_T = [...GREEDY.prompt_T, ...after.tokens_T];
    const weights_T = tokens_T.map((_, t) => Number(t >= GREEDY.prompt_T.length));
    const zeros = tokens_T.map(() => 0);
    const { logprobs_B_T } = await model.forward(
      [{ tokens_T, weights_T, advantages_T: zeros, samplerLogprobs_T: zeros }],
      CROSS_ENTROPY,
    );
    for (const [i, logprob] of after.logprobs_T.entries()) {
      expect(logprobs_B_T[0]?.[GREEDY.prompt_T.length + i]).toBeCloseTo(logprob, 4);
    }
  });
});

test("sampling goes on while a training step is computed", async () => {
  await using model = await service.createModel({ folder: base }, { method: FULL, seed: 3 });
  const many = Array.from({ length: 5000 }, (_, i) => ({
    ...DATA[0]!,
    tokens_T: DATA[0]!.tokens_T.map((token, t) => (t === 0 ? i % 23 : token)),
  }));
  // What a first call prepares takes its time on a busy machine.
  await model.sample({ ...GREEDY, conversation: "before", maxTokens: 1 });
  const order: string[] = [];
  const step = model.forwardBackward(many, CROSS_ENTROPY).then(() => order.push("step"));
  const sample = model
    .sample({ ...GREEDY, conversation: "a", maxTokens: 1 })
    .then(() => order.push("sample"));
  await Promise.all([step, sample]);
  expect(order).toEqual(["sample", "step"]);
});

test("an aborted call rejects with the reason", async () => {
  await using sampler = await service.openSampler({ folder: base });
  const abort = new AbortController();
  const call = sampler.sample({ ...GREEDY, conversation: "a", maxTokens: 29, signal: abort.signal });
  abort.abort(new Error("no longer wanted"));
  await expect(call).rejects.toThrow("no longer wanted");
  await expect(sampler.sample({ ...GREEDY, conversation: "a", signal: abort.signal })).rejects.toThrow(
    "no longer",
  );
});

test("a missing model is an expected failure", async () => {
  const opening = service.createModel({ folder: join(root, "nowhere") }, { method: FULL, seed: 0 });
  await expect(opening).rejects.toMatchObject({ name: "OsmosisError", code: "NOT_FOUND" });
});

test("a closed service refuses calls", async () => {
  const closed = createEmbeddedService({ threads: 1 });
  const model = await closed.createModel({ folder: base }, { method: FULL, seed: 0 });
  const late = model.forward(DATA, CROSS_ENTROPY);
  const refused = expect(late).rejects.toThrow("The training service is closed.");
  await closed[Symbol.asyncDispose]();
  await refused;
  await expect(model.optimStep(ADAM)).rejects.toThrow("The training service is closed.");
});

import { afterAll, beforeAll, expect, test } from "vitest";
import { createCallFlags } from "../graph/native-calls.ts";
import { parseModelConfig } from "../model-config.ts";
import { initialiseModel } from "../model/parameters.ts";
import { decoderThreads, productLayoutOf } from "../sampler/product-layout.ts";
import { openSamplingEngine } from "../sampler/sampling-engine.ts";
import type { SampleRequest } from "../service.ts";
import type { SamplingEngine } from "./sampling-engine.ts";
import { openSamplingLanes } from "./sampling-lanes.ts";

const config = parseModelConfig({
  model_type: "llama",
  vocab_size: 454,
  hidden_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  intermediate_size: 384,
  tie_word_embeddings: true,
});
const [weights, others] = [initialiseModel(config, 1), initialiseModel(config, 2)];

/** Its products are blocked, and its one key head lets a decoder have two threads: four threads are two lanes. */
const large = parseModelConfig({
  model_type: "qwen2",
  vocab_size: 8192,
  hidden_size: 512,
  num_hidden_layers: 2,
  num_attention_heads: 8,
  num_key_value_heads: 1,
  intermediate_size: 1536,
  tie_word_embeddings: true,
});

function request(i: number): SampleRequest {
  const prompt_T = Array.from({ length: 20 + (i >> 1) }, (_, t) => (t * t * 7 + (i >> 1) * 31) % 454);
  return {
    conversation: `${i}`,
    prompt_T,
    maxTokens: 12,
    temperature: 1,
    topP: 1,
    stopTokens: [],
    seed: i,
  };
}

let single: SamplingEngine;
let lanes: SamplingEngine;

beforeAll(async () => {
  single = await openSamplingEngine({ config, weights, version: 0 });
  lanes = await openSamplingLanes({ threads: 3, callFlags: createCallFlags() })({
    config,
    weights,
    version: 0,
  });
});

afterAll(async () => {
  await single.close();
  await lanes.close();
});

const sampleAll = (engine: SamplingEngine) =>
  Promise.all(Array.from({ length: 40 }, (_, i) => engine.sample(request(i))));

test("lanes answer with the bits of a single sampler, after a change of weights, too", async () => {
  const first = await sampleAll(lanes);
  expect(first).toEqual(await sampleAll(single));
  for (const engine of [single, lanes]) engine.setWeights(others, 1);
  const second = await sampleAll(lanes);
  expect(second).toEqual(await sampleAll(single));
  expect(second).not.toEqual(first);
  expect(second.map((result) => result.weightsVersion)).toEqual(second.map(() => 1));
});

test("lanes of a large model, each of several threads, answer with the bits of one thread", async () => {
  expect(productLayoutOf(large)).toBe("blocked");
  expect(decoderThreads(large, 4)).toBe(2);
  const given = { config: large, weights: initialiseModel(large, 1), version: 0 };
  const single = await openSamplingEngine(given);
  const lanes = await openSamplingLanes({ threads: 4, callFlags: createCallFlags() })(given);
  try {
    const sampleSome = (engine: SamplingEngine) =>
      Promise.all(
        Array.from({ length: 20 }, (_, i) => engine.sample({ ...request(i), maxTokens: 1 + (i % 4) })),
      );
    const first = await sampleSome(lanes);
    expect(first).toEqual(await sampleSome(single));
    const next = initialiseModel(large, 2);
    for (const engine of [single, lanes]) engine.setWeights(next, 1);
    const second = await sampleSome(lanes);
    expect(second).toEqual(await sampleSome(single));
    expect(second).not.toEqual(first);
  } finally {
    await Promise.all([single.close(), lanes.close()]);
  }
});

test("a request in any lane can be withdrawn", async () => {
  const abort = new AbortController();
  const withdrawn = Array.from({ length: 20 }, (_, i) =>
    lanes.sample({ ...request(2 * i), maxTokens: 400, signal: abort.signal }),
  );
  abort.abort(new Error("withdrawn"));
  const results = await Promise.allSettled(withdrawn);
  expect(results.map((result) => result.status)).toEqual(results.map(() => "rejected"));
  expect(results.map((result) => (result.status === "rejected" ? `${result.reason}` : ""))).toEqual(
    results.map(() => "Error: withdrawn"),
  );
});

test("weights that are not finite are refused before any lane takes them", () => {
  const broken = new Map(others);
  broken.set("model.norm.weight", { shape: [128], data: new Float32Array(128).fill(NaN) });
  expect(() => lanes.setWeights(broken, 2)).toThrow("NaN");
});

import { afterAll, beforeAll, expect, test } from "vitest";
import { createCallFlags } from "../graph/native-calls.ts";
import { parseModelConfig } from "../model-config.ts";
import { initialiseModel } from "../model/parameters.ts";
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

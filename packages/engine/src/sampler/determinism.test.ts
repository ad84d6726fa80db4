/** A request's bits depend on the weights, the prompt and the seed, and on nothing else. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { SamplingEngine } from "../embedded/sampling-engine.ts";
import type { ModelConfig } from "../model-config.ts";
import type { SampleRequest, SampleResult } from "../service.ts";
import { productLayoutOf } from "./product-layout.ts";
import { randomWeights, referenceLogprobs } from "./reference-decoder.ts";
import { openSamplingEngine } from "./sampling-engine.ts";

/** As wide as the shipped model: the split of a matrix product only shows when its inner dimension is large. */
const config: ModelConfig = {
  architecture: "llama",
  vocabSize: 454,
  hiddenSize: 128,
  layers: 2,
  heads: 4,
  kvHeads: 4,
  headSize: 32,
  feedForwardSize: 384,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  tiedHead: true,
  contextLength: 256,
};
const grouped: ModelConfig = { ...config, architecture: "qwen3", kvHeads: 2 };

const weights = new Map([config, grouped].map((config) => [config, randomWeights(config)]));

function open(options: { config?: ModelConfig; maxRows?: number; maxStoredBytes?: number } = {}) {
  const opened = options.config ?? config;
  return openSamplingEngine({
    config: opened,
    weights: weights.get(opened) ?? randomWeights(opened),
    version: 0,
    ...options,
  });
}

function prompt(length: number, seed: number): number[] {
  return Array.from({ length }, (_, i) => (i * i * 31 + i * seed * 17 + seed) % 454);
}

const watched: SampleRequest = {
  conversation: "watched",
  prompt_T: prompt(70, 3),
  maxTokens: 30,
  temperature: 0.9,
  topP: 0.95,
  stopTokens: [],
  seed: 42,
};

/** Other requests of many lengths; every third begins like the watched one. */
function others(count: number): SampleRequest[] {
  return Array.from({ length: count }, (_, i) => ({
    ...watched,
    conversation: `other ${i}`,
    prompt_T:
      i % 3 === 0 ? [...prompt(70, 3).slice(0, 20 + i), ...prompt(5, i)] : prompt(1 + ((i * 37) % 200), i),
    maxTokens: 1 + ((i * 13) % 25),
    temperature: 1,
    topP: 1,
    seed: i,
  }));
}

/** The exact bits of the log probabilities, not their printed form. */
function bits({ tokens_T, logprobs_T }: SampleResult) {
  return { tokens_T, bits: [...new BigUint64Array(Float64Array.from(logprobs_T).buffer)] };
}

async function withOthers(engine: SamplingEngine, count: number, position: number): Promise<SampleResult> {
  const requests = others(count);
  requests.splice(position, 0, watched);
  const results = await Promise.all(requests.map((one) => engine.sample(one)));
  return results[position] ?? expect.fail("the watched request was answered");
}

let alone: SampleResult;

beforeAll(async () => {
  const engine = await open();
  alone = await engine.sample(watched);
  await engine.close();
});

const opened: SamplingEngine[] = [];

afterAll(async () => {
  await Promise.all(opened.map((engine) => engine.close()));
});

async function track(engine: Promise<SamplingEngine>): Promise<SamplingEngine> {
  opened.push(await engine);
  return engine;
}

test.each([
  [1, 0],
  [4, 0],
  [4, 4],
  [63, 0],
  [63, 63],
  [100, 70],
])("next to %i others, at place %i", async (count, place) => {
  const engine = await track(open());
  expect(bits(await withOthers(engine, count, place))).toEqual(bits(alone));
});

test("when others arrive and leave at other times", async () => {
  const engine = await track(open({ maxRows: 16 }));
  const requests = others(30);
  const early = requests.slice(0, 10).map((one) => engine.sample(one));
  await early[0];
  const result = engine.sample(watched);
  const late: Promise<SampleResult>[] = [];
  for (const one of requests.slice(10)) {
    late.push(engine.sample(one));
    await Promise.race([late.at(-1), result]);
  }
  expect(bits(await result)).toEqual(bits(alone));
  await Promise.all([...early, ...late]);
});

test("when most or all of the prompt is in the cache", async () => {
  const engine = await track(open());
  for (const length of [69, 70, 50, 33, 1]) {
    await engine.sample({ ...watched, prompt_T: watched.prompt_T.slice(0, length), maxTokens: 3 });
    expect(bits(await engine.sample(watched))).toEqual(bits(alone));
  }
  expect(bits(await engine.sample(watched))).toEqual(bits(alone));
});

test.each([config, grouped])(
  "in the second call of a conversation, whether its cache is there or not ($architecture)",
  async (config) => {
    const turns = async (options: { maxStoredBytes?: number; forget?: boolean; company?: number }) => {
      const engine = await track(open({ config, ...options }));
      const first = await engine.sample(watched);
      if (options.forget) engine.endConversation("watched");
      const prompt_T = [...watched.prompt_T, ...first.tokens_T, ...prompt(17, 9)];
      const company = others(options.company ?? 0).map((one) => engine.sample(one));
      const second = await engine.sample({ ...watched, prompt_T, seed: 43 });
      await Promise.all(company);
      return [bits(first), bits(second)];
    };
    const cached = await turns({});
    expect(await turns({ forget: true })).toEqual(cached);
    expect(await turns({ maxStoredBytes: 0 })).toEqual(cached);
    expect(await turns({ company: 70 })).toEqual(cached);
    expect(await turns({ company: 20, forget: true })).toEqual(cached);
  },
);

test("greedily too", async () => {
  const engine = await track(open());
  const greedy: SampleRequest = { ...watched, temperature: 0, topP: 1 };
  const first = await engine.sample(greedy);
  const [again] = await Promise.all([
    engine.sample({ ...greedy, seed: 1 }),
    ...others(40).map((one) => engine.sample(one)),
  ]);
  expect(bits(again)).toEqual(bits(first));
});

test("another seed gives other tokens", async () => {
  const engine = await track(open());
  const other = await engine.sample({ ...watched, seed: 43 });
  expect(other.tokens_T).not.toEqual(alone.tokens_T);
});

describe.each([
  { architecture: "llama" },
  { architecture: "qwen2" },
  { architecture: "qwen3", tiedHead: false },
] as const)("a large $architecture, whose products are blocked,", (kind) => {
  // Wide enough that onnxruntime would cut the inner dimensions of its products.
  const large: ModelConfig = {
    ...config,
    ...kind,
    vocabSize: 2560,
    hiddenSize: 576,
    heads: 9,
    kvHeads: 3,
    headSize: 64,
    feedForwardSize: 1536,
  };
  const largeWeights = randomWeights(large);
  const openLarge = (threads: number) =>
    track(
      openSamplingEngine({ config: large, weights: largeWeights, version: 0, maxStoredBytes: 0, threads }),
    );
  const short = { ...watched, prompt_T: prompt(21, 3), maxTokens: 5 };
  const company = (count: number): SampleRequest[] =>
    others(count).map((one) => ({
      ...one,
      prompt_T: one.prompt_T.slice(0, 19),
      maxTokens: 1 + (one.seed % 7),
    }));

  test.each(kind.architecture === "llama" ? [1, 2, 3] : [2])(
    "answers with the same bits alone and among others, with %i threads",
    async (threads) => {
      expect(productLayoutOf(large)).toBe("blocked");
      const expected = bits(await (await openLarge(1)).sample(short));
      const engine = await openLarge(threads);
      expect(bits(await engine.sample(short))).toEqual(expected);
      for (const [count, place] of [
        [7, 3],
        [15, 15],
        [20, 17],
      ] as const) {
        const requests = company(count);
        requests.splice(place, 0, short);
        const results = await Promise.all(requests.map((one) => engine.sample(one)));
        expect(bits(results[place] ?? expect.fail("the watched request was answered"))).toEqual(expected);
      }
    },
  );

  test("gives the log probabilities of the reference decoder", async () => {
    const request = { ...short, prompt_T: prompt(9, 3), temperature: 1, topP: 1, maxTokens: 2 };
    const { tokens_T, logprobs_T } = await (await openLarge(2)).sample(request);
    const logprobs = referenceLogprobs(large, largeWeights, [...request.prompt_T, ...tokens_T]);
    for (const [t, token] of tokens_T.entries()) {
      expect(logprobs_T[t]).toBeCloseTo(logprobs[request.prompt_T.length - 1 + t]?.[token] ?? NaN, 4);
    }
  });
});

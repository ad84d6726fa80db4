import { setImmediate } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { ModelConfig } from "../model-config.ts";
import type { SampleRequest } from "../service.ts";
import { randomWeights, referenceLogprobs } from "./reference-decoder.ts";
import { openSamplingEngine } from "./sampling-engine.ts";
import type { SamplingOptions } from "./sampling-engine.ts";

const llama: ModelConfig = {
  architecture: "llama",
  vocabSize: 61,
  hiddenSize: 32,
  layers: 2,
  heads: 4,
  kvHeads: 4,
  headSize: 8,
  feedForwardSize: 48,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  tiedHead: true,
  contextLength: 120,
};

const models: ModelConfig[] = [
  llama,
  { ...llama, architecture: "qwen2", kvHeads: 2, tiedHead: false, ropeTheta: 1e6 },
  { ...llama, architecture: "qwen3", kvHeads: 1, headSize: 16 },
  { ...llama, layers: 1, kvHeads: 2 },
];

function open(config: ModelConfig, options: Partial<SamplingOptions> = {}) {
  return openSamplingEngine({ config, weights: randomWeights(config), version: 0, ...options });
}

function prompt(length: number, seed = 1): number[] {
  return Array.from({ length }, (_, i) => (i * i * 7 + i * seed * 13 + seed) % 61);
}

function request(options: Partial<SampleRequest> = {}): SampleRequest {
  return {
    conversation: "one",
    prompt_T: prompt(9),
    maxTokens: 12,
    temperature: 1,
    topP: 1,
    stopTokens: [],
    seed: 5,
    ...options,
  };
}

describe.each(models)("$architecture with $kvHeads key-value heads and $layers layers", (config) => {
  test("log probabilities are those of a plain forward pass", async () => {
    const engine = await open(config);
    const { tokens_T, logprobs_T, stopReason } = await engine.sample(request({ prompt_T: prompt(40) }));
    const sequence_T = [...prompt(40), ...tokens_T];
    const expected = referenceLogprobs(config, randomWeights(config), sequence_T);
    expect(stopReason).toBe("length");
    expect(tokens_T).toHaveLength(12);
    for (const [i, token] of tokens_T.entries()) {
      expect(logprobs_T[i]).toBeCloseTo(expected[39 + i]?.[token] ?? NaN, 4);
    }
    await engine.close();
  });

  test("temperature 0 takes the likeliest token, with its log probability at temperature 1", async () => {
    const engine = await open(config);
    const { tokens_T, logprobs_T } = await engine.sample(request({ temperature: 0 }));
    const expected = referenceLogprobs(config, randomWeights(config), [...prompt(9), ...tokens_T]);
    for (const [i, token] of tokens_T.entries()) {
      const row = expected[8 + i] ?? [];
      expect(token).toBe(row.indexOf(Math.max(...row)));
      expect(logprobs_T[i]).toBeCloseTo(row[token] ?? NaN, 4);
    }
    await engine.close();
  });
});

describe("a request that cannot be sampled is refused", () => {
  test.each([
    [{ prompt_T: [] }, "prompt is empty"],
    [{ prompt_T: prompt(120) }, "The prompt has 120 tokens; with a context of 120 that leaves no room"],
    [{ prompt_T: [3, 61] }, "token 61; the vocabulary ends at 60"],
    [{ prompt_T: [3, -1] }, "token -1"],
    [{ prompt_T: [0.5] }, "token 0.5"],
    [{ maxTokens: 0 }, "maxTokens is 0"],
    [{ temperature: -1 }, "temperature is -1"],
    [{ temperature: NaN }, "temperature is NaN"],
    [{ temperature: 1e-9 }, "temperature is 1e-9"],
    [{ topP: 0 }, "topP is 0"],
    [{ seed: -1 }, "seed is -1"],
  ] as const)("%j", async (options, message) => {
    const engine = await open(llama);
    await expect(engine.sample(request(options))).rejects.toMatchObject({
      code: "VALIDATION",
      message: expect.stringContaining(message),
    });
    await engine.close();
  });
});

describe("an answer ends", () => {
  test("with the stop token, which is part of it", async () => {
    const engine = await open(llama);
    const free = await engine.sample(request());
    const stop = free.tokens_T[5] ?? NaN;
    const length = free.tokens_T.indexOf(stop) + 1;
    const stopped = await engine.sample(request({ stopTokens: [60, stop] }));
    expect(stopped).toEqual({
      tokens_T: free.tokens_T.slice(0, length),
      logprobs_T: free.logprobs_T.slice(0, length),
      stopReason: "stop",
      weightsVersion: 0,
    });
    await engine.close();
  });

  test("where the context ends", async () => {
    const engine = await open(llama);
    const result = await engine.sample(request({ prompt_T: prompt(117), maxTokens: 50 }));
    expect([result.tokens_T.length, result.stopReason]).toEqual([3, "length"]);
    await engine.close();
  });
});

describe("cancelling", () => {
  test("a running request frees its row, and the others go on undisturbed", async () => {
    const engine = await open(llama, { maxRows: 2 });
    const expected = await engine.sample(request({ seed: 8 }));
    const abort = new AbortController();
    const reason = new Error("no longer wanted");
    const long = engine.sample(request({ maxTokens: 100, signal: abort.signal }));
    const others = [8, 8, 8].map((seed) => engine.sample(request({ seed })));
    await others[0];
    abort.abort(reason);
    await expect(long).rejects.toBe(reason);
    expect(await Promise.all(others)).toEqual([expected, expected, expected]);
    await engine.close();
  });

  test("a waiting request, and one that was cancelled before", async () => {
    const engine = await open(llama, { maxRows: 1 });
    const abort = new AbortController();
    const first = engine.sample(request({ maxTokens: 30 }));
    const second = engine.sample(request({ signal: abort.signal }));
    abort.abort(new Error("changed my mind"));
    await expect(second).rejects.toThrow("changed my mind");
    await expect(engine.sample(request({ signal: abort.signal }))).rejects.toThrow("changed my mind");
    expect((await first).tokens_T).toHaveLength(30);
    await engine.close();
  });

  test("closing rejects what is under way and what comes later", async () => {
    const engine = await open(llama);
    const running = engine.sample(request({ maxTokens: 100 }));
    await Promise.all([expect(running).rejects.toThrow("The sampler is closed."), engine.close()]);
    await expect(engine.sample(request())).rejects.toThrow("The sampler is closed.");
  });
});

describe("weights", () => {
  test("of a request are those that it began with; later ones get the next and its version", async () => {
    const other = randomWeights(llama, 1.5);
    const [before, after] = await Promise.all([open(llama), openWith(other, 7)]);
    const engine = await open(llama);
    const early = engine.sample(request());
    const meanwhile = engine.sample(request({ prompt_T: prompt(5) }));
    while (!(await progressed(engine))) continue;
    engine.setWeights(other, 7);
    const late = engine.sample(request());
    expect(await early).toEqual(await before.sample(request()));
    expect((await meanwhile).weightsVersion).toBe(0);
    expect(await late).toEqual(await after.sample(request()));
    // The same prompt again: nothing of the old weights may be left in the cache.
    expect(await engine.sample(request())).toEqual(await after.sample(request()));
    await Promise.all([before, after, engine].map((opened) => opened.close()));
  });

  test("that do not fit are refused by the name of the tensor, and the old ones stay", async () => {
    const engine = await open(llama);
    const expected = await engine.sample(request());
    const name = "model.layers.1.mlp.down_proj.weight";
    const broken = randomWeights(llama);
    broken.delete(name);
    expect(() => engine.setWeights(broken, 1)).toThrow(`no tensor ${name}`);
    broken.set(name, { shape: [2, 2], data: new Float32Array(4) });
    expect(() => engine.setWeights(broken, 1)).toThrow(`${name} has shape [2, 2] instead of [32, 48]`);
    broken.set(name, { shape: [32, 48], data: new Float32Array(32 * 48).fill(NaN) });
    expect(() => engine.setWeights(broken, 1)).toThrow(`${name} holds a NaN`);
    expect(await engine.sample(request())).toEqual(expected);
    await engine.close();
  });

  test("that explode are an error of the request, not of those that come after better weights", async () => {
    const exploding = randomWeights(llama);
    exploding.get("model.layers.0.input_layernorm.weight")?.data.fill(3e38);
    const engine = await openWith(exploding, 0);
    await expect(engine.sample(request())).rejects.toThrow("probabilities are not finite");
    engine.setWeights(randomWeights(llama), 1);
    const healthy = await open(llama);
    expect((await engine.sample(request())).logprobs_T).toEqual((await healthy.sample(request())).logprobs_T);
    await Promise.all([engine.close(), healthy.close()]);
  });
});

test("a cache too small for two requests serves them one after the other", async () => {
  const engine = await open(llama, { maxCacheBytes: 1 });
  const results = await Promise.all([1, 2, 1].map((seed) => engine.sample(request({ seed }))));
  expect(results[2]).toEqual(results[0]);
  await engine.close();
});

test("requests that come and are cancelled at any moment leave the others as if they were alone", async () => {
  const engine = await open(llama, { maxRows: 5, maxStoredBytes: 20_000 });
  const aborts: AbortController[] = [];
  const results = await Promise.allSettled(
    Array.from({ length: 60 }, async (_, i) => {
      for (let turn = 0; turn < (i * 7) % 23; turn++) await setImmediate();
      const abort = new AbortController();
      aborts.push(abort);
      if (i % 4 === 3) aborts[(i * 5) % aborts.length]?.abort(new Error("cancelled"));
      return engine.sample(variant(i, { signal: abort.signal }));
    }),
  );
  expect(results.filter(({ status }) => status === "rejected").length).toBeGreaterThan(3);
  const fresh = await open(llama, { maxRows: 1, maxStoredBytes: 0 });
  for (const [i, result] of results.entries()) {
    if (result.status === "fulfilled") expect(result.value).toEqual(await fresh.sample(variant(i)));
    else expect(result.reason).toEqual(new Error("cancelled"));
  }
  await Promise.all([engine.close(), fresh.close()]);
});

test("200 concurrent requests are all answered, each as if it were alone", async () => {
  const engine = await open(llama);
  const requests = Array.from({ length: 200 }, (_, i) =>
    request({
      conversation: `c${i}`,
      prompt_T: prompt(1 + (i % 40), i % 7),
      seed: i,
      maxTokens: 1 + (i % 9),
    }),
  );
  const results = await Promise.all(requests.map((one) => engine.sample(one)));
  for (const i of [0, 1, 63, 64, 130, 199]) {
    const alone = await open(llama);
    expect(results[i]).toEqual(await alone.sample(requests[i] ?? request()));
    await alone.close();
  }
  await engine.close();
});

/** One of many different requests; some begin alike. */
function variant(i: number, options: Partial<SampleRequest> = {}): SampleRequest {
  const prompt_T = [...prompt(30).slice(0, i % 30), ...prompt(1 + (i % 11), i)];
  return request({ conversation: `c${i % 9}`, prompt_T, seed: i, maxTokens: 1 + ((i * 3) % 17), ...options });
}

function openWith(weights: ReturnType<typeof randomWeights>, version: number) {
  return openSamplingEngine({ config: llama, weights, version });
}

/** Lets a one-token request through, so that those before it are surely under way. */
async function progressed(engine: Awaited<ReturnType<typeof open>>): Promise<boolean> {
  const { tokens_T } = await engine.sample(request({ prompt_T: [1], maxTokens: 1 }));
  return tokens_T.length === 1;
}

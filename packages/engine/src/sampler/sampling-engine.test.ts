import { describe, expect, test } from "vitest";
import type { ModelConfig } from "../model-config.ts";
import type { SampleRequest } from "../service.ts";
import { randomWeights, referenceLogprobs } from "./reference-decoder.ts";
import { openSamplingEngine } from "./sampling-engine.ts";

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

function open(config: ModelConfig, options: { maxRows?: number; maxStoredBytes?: number } = {}) {
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

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parseModelConfig, parseModelSize, readModelConfig } from "./model-config.ts";

const llama = {
  model_type: "llama",
  vocab_size: 454,
  hidden_size: 128,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  intermediate_size: 384,
  rms_norm_eps: 1e-5,
  max_position_embeddings: 512,
  tie_word_embeddings: true,
};

test("a Llama config becomes a model config, defaults filled in", () => {
  expect(parseModelConfig(llama)).toEqual({
    architecture: "llama",
    vocabSize: 454,
    hiddenSize: 128,
    layers: 4,
    heads: 4,
    kvHeads: 4,
    headSize: 32,
    feedForwardSize: 384,
    ropeTheta: 10_000,
    normEpsilon: 1e-5,
    tiedHead: true,
    contextLength: 512,
  });
});

test("grouped heads, a free head size and a rotary base in either place are read", () => {
  const qwen3 = { ...llama, model_type: "qwen3", num_key_value_heads: 2, head_dim: 64 };
  expect(parseModelConfig({ ...qwen3, rope_theta: 1e6 })).toMatchObject({
    kvHeads: 2,
    headSize: 64,
    ropeTheta: 1e6,
  });
  const nested = { ...qwen3, rope_parameters: { rope_type: "default", rope_theta: 5e5 } };
  expect(parseModelConfig(nested).ropeTheta).toBe(5e5);
});

test.each([
  [{ ...llama, model_type: "mamba" }, 'model_type "mamba" is not supported'],
  [{ ...llama, vocab_size: "many" }, "vocab_size"],
  [{ ...llama, num_key_value_heads: 3 }, "no multiple"],
  [{ ...llama, rope_scaling: { rope_type: "yarn" } }, 'rotary scaling "yarn"'],
  [{ ...llama, rope_scaling: { rope_type: "llama3", factor: 8 } }, 'rotary scaling "llama3" needs'],
  [{ ...llama, hidden_act: "gelu", mlp_bias: true }, 'hidden_act "gelu" (only "silu"), mlp_bias'],
  [{ ...llama, num_attention_heads: 3, num_key_value_heads: 3 }, "not even"],
  [[], "expected object"],
])("%# a config that cannot be built says why", (config, message) => {
  expect(() => parseModelConfig(config, "folder/config.json")).toThrow(message);
  expect(() => parseModelConfig(config, "folder/config.json")).toThrow("folder/config.json");
});

test("a folder without a config, or with a broken one, names the file", async () => {
  const folder = await mkdtemp(join(tmpdir(), "config-"));
  await expect(readModelConfig(folder)).rejects.toMatchObject({ code: "NOT_FOUND" });
  await writeFile(join(folder, "config.json"), "{");
  await expect(readModelConfig(folder)).rejects.toThrow("config.json is not JSON");
  await rm(folder, { recursive: true });
});

test("the size of a model is read whatever its architecture, from the table of its decoder where it has one", () => {
  const size = { vocab_size: 262_208, max_position_embeddings: 131_072 };
  const expected = { vocabSize: 262_208, contextLength: 131_072 };
  expect(parseModelSize({ model_type: "gpt_oss", ...size })).toEqual(expected);
  expect(parseModelSize({ model_type: "gemma3", text_config: size, vision_config: {} })).toEqual(expected);
  expect(() => parseModelSize({ vocab_size: 7, text_config: {} })).toThrow(
    "config.json: there is no max_position_embeddings",
  );
  expect(() => parseModelSize({ ...size, vocab_size: 0 })).toThrow("config.json:");
});

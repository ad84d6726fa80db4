/** Writes the parts of a Hugging Face model folder that are not learned by gradient, and random first weights. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { randomSource } from "../src/model/random.ts";
import { writeSafetensors } from "../src/safetensors.ts";
import type { Weights } from "../src/safetensors.ts";
import { SPECIAL_TOKENS } from "./tokenizer-trainer.ts";
import type { TokenizerJson } from "./tokenizer-trainer.ts";

export type ModelShape = {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly layers: number;
  readonly heads: number;
  readonly feedForwardSize: number;
  readonly contextLength: number;
};

/** `config.json` of a Llama model with as many key-value heads as heads and a tied output head. */
export async function writeConfig(folder: string, shape: ModelShape): Promise<void> {
  await writeJson(join(folder, "config.json"), {
    architectures: ["LlamaForCausalLM"],
    model_type: "llama",
    vocab_size: shape.vocabSize,
    hidden_size: shape.hiddenSize,
    intermediate_size: shape.feedForwardSize,
    num_hidden_layers: shape.layers,
    num_attention_heads: shape.heads,
    num_key_value_heads: shape.heads,
    head_dim: shape.hiddenSize / shape.heads,
    hidden_act: "silu",
    max_position_embeddings: shape.contextLength,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    attention_bias: false,
    mlp_bias: false,
    tie_word_embeddings: true,
    bos_token_id: null,
    eos_token_id: tokenId("end"),
    pad_token_id: tokenId("endOfText"),
    torch_dtype: "float16",
  });
  await writeJson(join(folder, "generation_config.json"), {
    eos_token_id: [tokenId("end"), tokenId("endOfText")],
    pad_token_id: tokenId("endOfText"),
  });
}

/** `tokenizer.json` and `tokenizer_config.json`, with the chat template of `chat-template.jinja`; returns the latter. */
export async function writeTokenizer(
  folder: string,
  { tokenizer, contextLength }: { tokenizer: TokenizerJson; contextLength: number },
): Promise<Readonly<Record<string, unknown>>> {
  const config = {
    tokenizer_class: "PreTrainedTokenizerFast",
    bos_token: null,
    eos_token: SPECIAL_TOKENS.end,
    pad_token: SPECIAL_TOKENS.endOfText,
    clean_up_tokenization_spaces: false,
    model_max_length: contextLength,
    chat_template: await readFile(new URL("chat-template.jinja", import.meta.url), "utf8"),
  };
  await writeJson(join(folder, "tokenizer.json"), tokenizer);
  await writeJson(join(folder, "tokenizer_config.json"), config);
  return config;
}

/** First weights as GPT-2 draws them: normal with deviation 0.02, less where a layer adds to the residual stream. */
export async function writeFirstWeights(folder: string, shape: ModelShape, seed: number): Promise<void> {
  const random = randomSource(seed);
  const drawn = (rows: number, columns: number, deviation: number) => ({
    shape: [rows, columns],
    data: Float32Array.from({ length: rows * columns }, () => deviation * random.normal()),
  });
  const ones = () => ({ shape: [shape.hiddenSize], data: new Float32Array(shape.hiddenSize).fill(1) });
  const { hiddenSize: width, feedForwardSize: wide, vocabSize, layers } = shape;
  const inner = 0.02;
  const residual = inner / Math.sqrt(2 * layers);

  const weights: Weights = new Map();
  weights.set("model.embed_tokens.weight", drawn(vocabSize, width, inner));
  for (let layer = 0; layer < layers; layer += 1) {
    const name = (part: string): string => `model.layers.${layer}.${part}.weight`;
    weights.set(name("input_layernorm"), ones());
    weights.set(name("self_attn.q_proj"), drawn(width, width, inner));
    weights.set(name("self_attn.k_proj"), drawn(width, width, inner));
    weights.set(name("self_attn.v_proj"), drawn(width, width, inner));
    weights.set(name("self_attn.o_proj"), drawn(width, width, residual));
    weights.set(name("post_attention_layernorm"), ones());
    weights.set(name("mlp.gate_proj"), drawn(wide, width, inner));
    weights.set(name("mlp.up_proj"), drawn(wide, width, inner));
    weights.set(name("mlp.down_proj"), drawn(width, wide, residual));
  }
  weights.set("model.norm.weight", ones());
  await writeSafetensors(join(folder, "model.safetensors"), weights);
}

function tokenId(name: keyof typeof SPECIAL_TOKENS): number {
  return Object.keys(SPECIAL_TOKENS).indexOf(name);
}

async function writeJson(path: string, value: unknown): Promise<void> {
  await writeFile(path, `${JSON.stringify(value, null, 2)}\n`);
}

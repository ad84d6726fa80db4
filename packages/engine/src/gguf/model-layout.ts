import { OsmosisError } from "@osmosis/protocol";
import { ARCHITECTURES, parseModelConfig, type ModelConfig } from "../model-config.ts";
import { parameterShapes } from "../model/parameters.ts";
import type { WeightTensor } from "../safetensors.ts";
import type { GgufHeader } from "./header.ts";
import { metadataReader } from "./metadata.ts";
import { ROPE_FACTORS, ropeScalingOf } from "./rope-factors.ts";

/** The `config.json` of a model, and the same as the engine reads it. */
export type ConfigFile = { readonly json: Record<string, unknown>; readonly config: ModelConfig };

/**
 * The `config.json` that says what a GGUF file's metadata say. `ropeFactors` are the values of its tensor for them.
 * @throws OsmosisError `VALIDATION` for an architecture or a feature that the engine does not build.
 */
export function configFileOf(
  path: string,
  { metadata, tensors }: GgufHeader,
  ropeFactors: Float32Array | undefined,
): ConfigFile {
  const read = metadataReader(path, metadata);
  const name = read.text("general.architecture");
  const architecture = ARCHITECTURES.find((known) => known === name);
  if (architecture === undefined) {
    throw new OsmosisError("VALIDATION", `${path}: architecture "${name}" is not supported.`, {
      hint: `The engine builds ${ARCHITECTURES.join(", ")}.`,
    });
  }
  const number = (key: string): number => read.number(`${architecture}.${key}`);
  const optional = (key: string): number | undefined => read.optionalNumber(`${architecture}.${key}`);
  const scaling = read.optionalText(`${architecture}.rope.scaling.type`) ?? "none";
  const ropeTheta = decimal(optional("rope.freq_base") ?? 10_000);
  const ropeScaling =
    scaling !== "none"
      ? { rope_type: scaling }
      : ropeFactors === undefined
        ? undefined
        : ropeScalingOf(path, ropeFactors, ropeTheta);
  const heads = number("attention.head_count");
  const hiddenSize = number("embedding_length");
  const headSize = optional("attention.key_length") ?? optional("rope.dimension_count") ?? hiddenSize / heads;
  const json: Record<string, unknown> = {
    architectures: [CLASS_NAMES[architecture]],
    model_type: architecture,
    vocab_size: tensors.get("token_embd.weight")?.shape[0],
    hidden_size: hiddenSize,
    intermediate_size: number("feed_forward_length"),
    num_hidden_layers: number("block_count"),
    num_attention_heads: heads,
    num_key_value_heads: optional("attention.head_count_kv") ?? heads,
    head_dim: headSize,
    hidden_act: "silu",
    max_position_embeddings: number("context_length"),
    rms_norm_eps: decimal(number("attention.layer_norm_rms_epsilon")),
    rope_theta: ropeTheta,
    ...(ropeScaling === undefined ? {} : { rope_scaling: ropeScaling }),
    tie_word_embeddings: !tensors.has("output.weight"),
    bos_token_id: read.optionalNumber("tokenizer.ggml.bos_token_id") ?? null,
    eos_token_id: read.optionalNumber("tokenizer.ggml.eos_token_id") ?? null,
  };
  return { json, config: parseModelConfig(json, path) };
}

const CLASS_NAMES = {
  llama: "LlamaForCausalLM",
  qwen2: "Qwen2ForCausalLM",
  qwen3: "Qwen3ForCausalLM",
} as const;

/** The decimal that was meant by a number which went through single precision: 1e-5, not 0.000009999999747378752. */
function decimal(value: number): number {
  return Number(value.toPrecision(7));
}

/**
 * The GGUF name of every tensor of the model by its Hugging Face name.
 * @throws OsmosisError `VALIDATION` when the file lacks one, has one of another shape, or has one that the engine would
 * leave out.
 */
export function tensorNames(path: string, config: ModelConfig, { tensors }: GgufHeader): Map<string, string> {
  const names = new Map<string, string>();
  for (const [name, shape] of parameterShapes(config)) {
    const ggufName = ggufNameOf(name);
    const found = tensors.get(ggufName);
    if (found === undefined) throw new OsmosisError("VALIDATION", `${path} has no tensor ${ggufName}.`);
    if (found.shape.join() !== shape.join()) {
      throw new OsmosisError(
        "VALIDATION",
        `${path}: tensor ${ggufName} has shape [${found.shape.join(", ")}], the model needs [${shape.join(", ")}].`,
      );
    }
    names.set(name, ggufName);
  }
  const known = new Set(names.values());
  const extra = [...tensors.keys()].filter((name) => !known.has(name) && name !== ROPE_FACTORS);
  if (extra.length > 0) {
    throw new OsmosisError(
      "VALIDATION",
      `${path} has tensors that a ${config.architecture} model here does not use: ${extra.slice(0, 5).join(", ")}${extra.length > 5 ? ", …" : ""}.`,
    );
  }
  return names;
}

const STEMS: Readonly<Record<string, string>> = {
  "model.embed_tokens": "token_embd",
  "model.norm": "output_norm",
  lm_head: "output",
  input_layernorm: "attn_norm",
  post_attention_layernorm: "ffn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
};

function ggufNameOf(name: string): string {
  const layered = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)$/.exec(name);
  if (layered !== null) return `blk.${layered[1]}.${STEMS[layered[2] ?? ""]}.${layered[3]}`;
  const dot = name.lastIndexOf(".");
  return `${STEMS[name.slice(0, dot)]}${name.slice(dot)}`;
}

/**
 * Undoes what a conversion to GGUF does to q and k of a Llama: GGUF pairs neighbouring rows of a head for the rotary
 * embedding, Hugging Face pairs row i with row i + headSize / 2.
 */
export function separateRotaryHalves({ shape, data }: WeightTensor, headSize: number): WeightTensor {
  const [rows = 0, columns = 1] = shape;
  const separated = new Float32Array(data.length);
  for (let row = 0; row < rows; row++) {
    const inHead = row % headSize;
    const to = row - inHead + (inHead % 2) * (headSize / 2) + (inHead >> 1);
    separated.set(data.subarray(row * columns, (row + 1) * columns), to * columns);
  }
  return { shape, data: separated };
}

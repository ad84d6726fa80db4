import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { errorMessage, OsmosisError } from "@osmosis/protocol";
import { z } from "zod";
import type { RopeScaling } from "./rope-periods.ts";

/** The decoder architectures that the engine builds. */
export const ARCHITECTURES = ["llama", "qwen2", "qwen3"] as const;

/** What shapes a decoder. Qwen2 adds biases to q, k and v; Qwen3 normalises q and k per head. */
export type ModelConfig = {
  readonly architecture: (typeof ARCHITECTURES)[number];
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Divides `heads`; each key-value head serves `heads / kvHeads` query heads. */
  readonly kvHeads: number;
  /** Not always `hiddenSize / heads`: Qwen3 sets it freely. */
  readonly headSize: number;
  readonly feedForwardSize: number;
  readonly ropeTheta: number;
  /** Only of Llama 3.1 and later. */
  readonly ropeScaling?: RopeScaling;
  readonly normEpsilon: number;
  /** The output head is the embedding matrix; there is no `lm_head.weight`. */
  readonly tiedHead: boolean;
  /** Longest sequence in tokens. */
  readonly contextLength: number;
};

/**
 * Reads `config.json` of a Hugging Face model folder.
 * @throws OsmosisError `NOT_FOUND` without the file, `VALIDATION` for an architecture or a feature that the engine does
 * not build (other activations, biases, scaled rotary embeddings, sliding windows in use).
 */
export async function readModelConfig(folder: string): Promise<ModelConfig> {
  return parseModelConfig(...(await readConfigFile(folder)));
}

/** What has to be known of a model whose weights are elsewhere; of any architecture. */
export type ModelSize = Pick<ModelConfig, "vocabSize" | "contextLength">;

/**
 * Reads the size of a model from `config.json` of its folder, which needs no weights.
 * @throws OsmosisError `NOT_FOUND` without the file, `VALIDATION` when it does not tell the size.
 */
export async function readModelSize(folder: string): Promise<ModelSize> {
  return parseModelSize(...(await readConfigFile(folder)));
}

async function readConfigFile(folder: string): Promise<[value: unknown, path: string]> {
  const path = join(folder, "config.json");
  const text = await readFile(path, "utf8").catch((error: unknown) => {
    throw new OsmosisError("NOT_FOUND", `${path} cannot be read: ${errorMessage(error)}.`, {
      cause: error,
      hint: "A model is a folder with config.json, tokenizer.json, tokenizer_config.json and safetensors.",
    });
  });
  try {
    return [JSON.parse(text), path];
  } catch (error) {
    throw new OsmosisError("VALIDATION", `${path} is not JSON: ${errorMessage(error)}.`);
  }
}

/** `readModelConfig` for a parsed `config.json`; `path` is what errors call it. */
export function parseModelConfig(value: unknown, path = "config.json"): ModelConfig {
  const type = ModelType.safeParse(value);
  if (!type.success) throw invalid(path, z.prettifyError(type.error));
  const architecture = ARCHITECTURES.find((known) => known === type.data.model_type);
  if (architecture === undefined) {
    throw invalid(path, `model_type "${type.data.model_type}" is not supported`, SUPPORTED);
  }
  const parsed = ConfigFile.safeParse(value);
  if (!parsed.success) throw invalid(path, z.prettifyError(parsed.error));
  const file = parsed.data;
  refuseUnsupported(path, architecture, file);

  const heads = file.num_attention_heads;
  const kvHeads = file.num_key_value_heads ?? heads;
  if (heads % kvHeads !== 0) {
    throw invalid(path, `num_attention_heads ${heads} is no multiple of num_key_value_heads ${kvHeads}`);
  }
  const headSize = file.head_dim ?? (architecture === "qwen3" ? 128 : file.hidden_size / heads);
  if (!Number.isInteger(headSize) || headSize % 2 !== 0) {
    throw invalid(path, `a head of ${headSize} dimensions is not even, as rotary embeddings need`);
  }
  return {
    architecture,
    vocabSize: file.vocab_size,
    hiddenSize: file.hidden_size,
    layers: file.num_hidden_layers,
    heads,
    kvHeads,
    headSize,
    feedForwardSize: file.intermediate_size,
    ropeTheta: file.rope_theta ?? file.rope_parameters?.rope_theta ?? 10_000,
    ...ropeScalingOf(path, file),
    normEpsilon: file.rms_norm_eps,
    tiedHead: file.tie_word_embeddings,
    contextLength: file.max_position_embeddings,
  };
}

/** `readModelSize` for a parsed `config.json`; `path` is what errors call it. */
export function parseModelSize(value: unknown, path = "config.json"): ModelSize {
  const parsed = SizeFile.safeParse(value);
  if (!parsed.success) throw invalid(path, z.prettifyError(parsed.error));
  const { text_config: text } = parsed.data;
  const vocabSize = parsed.data.vocab_size ?? text?.vocab_size;
  const contextLength = parsed.data.max_position_embeddings ?? text?.max_position_embeddings;
  if (vocabSize != null && contextLength != null) return { vocabSize, contextLength };
  const missing = vocabSize == null ? "vocab_size" : "max_position_embeddings";
  throw invalid(
    path,
    `there is no ${missing}, neither at its top nor in text_config`,
    `Add it to the config.json of a folder, as the model's card tells it: osmosis model import FOLDER --without-weights.`,
  );
}

const SUPPORTED = `The engine builds ${ARCHITECTURES.join(", ")}.`;

const ModelType = z.object({ model_type: z.string() });

const size = z.int().positive();

const Size = z.object({ vocab_size: size.nullish(), max_position_embeddings: size.nullish() });

/** Models that see, too, describe their decoder in a table of its own. */
const SizeFile = Size.extend({ text_config: Size.nullish() });

/** Newer files keep the base under `rope_parameters`, older ones call the scaling `rope_scaling`. */
const Rope = z
  .object({
    rope_type: z.string().optional(),
    type: z.string().optional(),
    rope_theta: z.number().positive().optional(),
    factor: z.number().min(1).optional(),
    low_freq_factor: z.number().positive().optional(),
    high_freq_factor: z.number().positive().optional(),
    original_max_position_embeddings: size.optional(),
  })
  .nullish();

const ConfigFile = z.object({
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size,
  num_attention_heads: size,
  num_key_value_heads: size.nullish(),
  head_dim: size.nullish(),
  intermediate_size: size,
  rope_theta: z.number().positive().nullish(),
  rope_parameters: Rope,
  rope_scaling: Rope,
  rms_norm_eps: z.number().positive().default(1e-6),
  tie_word_embeddings: z.boolean().default(false),
  max_position_embeddings: size.default(2048),
  hidden_act: z.string().default("silu"),
  attention_bias: z.boolean().default(false),
  mlp_bias: z.boolean().default(false),
  use_sliding_window: z.boolean().default(false),
});

function refuseUnsupported(path: string, architecture: string, file: z.infer<typeof ConfigFile>): void {
  const { type: ropeType } = ropeOf(file);
  const reasons = [
    file.hidden_act !== "silu" && `hidden_act "${file.hidden_act}" (only "silu")`,
    ropeType !== "default" && ropeType !== "llama3" && `rotary scaling "${ropeType}" (only "llama3")`,
    file.attention_bias && architecture !== "qwen2" && "attention_bias",
    file.mlp_bias && "mlp_bias",
    file.use_sliding_window && "use_sliding_window",
  ].filter((reason) => reason !== false);
  if (reasons.length > 0) throw invalid(path, `not supported: ${reasons.join(", ")}`, SUPPORTED);
}

/** Newer files have one object for both, older ones have the scaling only. */
function ropeOf({ rope_parameters, rope_scaling }: z.infer<typeof ConfigFile>) {
  const rope = rope_parameters?.rope_type === "default" ? null : (rope_parameters ?? rope_scaling);
  return { rope, type: rope?.rope_type ?? rope?.type ?? "default" };
}

function ropeScalingOf(path: string, file: z.infer<typeof ConfigFile>): { ropeScaling?: RopeScaling } {
  const { rope, type } = ropeOf(file);
  if (rope == null || type !== "llama3") return {};
  const { factor, low_freq_factor: lowTurns, high_freq_factor: highTurns } = rope;
  const originalContext = rope.original_max_position_embeddings;
  if (
    factor === undefined ||
    lowTurns === undefined ||
    highTurns === undefined ||
    originalContext === undefined ||
    lowTurns >= highTurns
  ) {
    throw invalid(
      path,
      'rotary scaling "llama3" needs factor, low_freq_factor below high_freq_factor, and original_max_position_embeddings',
    );
  }
  return { ropeScaling: { factor, lowTurns, highTurns, originalContext } };
}

function invalid(path: string, what: string, hint?: string): OsmosisError {
  return new OsmosisError("VALIDATION", `${path}: ${what}.`, hint === undefined ? {} : { hint });
}

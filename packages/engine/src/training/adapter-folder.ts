import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { errorMessage, OsmosisError } from "@osmosis/protocol";
import { z } from "zod";
import type { ModelConfig } from "../model-config.ts";
import { adaptedLayers, adapterNames } from "../model/adapter.ts";
import { requireShape } from "../model/model-folder.ts";
import { LINEAR_LAYERS } from "../model/parameters.ts";
import { readSafetensors, writeSafetensors, type Weights } from "../safetensors.ts";
import type { Adapter } from "./trainer.ts";

/** What PEFT puts in front of every name in `adapter_model.safetensors`. */
const PEFT_PREFIX = "base_model.model.";

const AdapterConfig = z.object({
  peft_type: z.literal("LORA"),
  r: z.int().positive(),
  lora_alpha: z.number(),
  use_rslora: z.literal(false).nullish(),
  use_dora: z.literal(false).nullish(),
  rank_pattern: z.record(z.string(), z.never()).nullish(),
  alpha_pattern: z.record(z.string(), z.never()).nullish(),
});

/** Writes `adapter_config.json` and `adapter_model.safetensors` as PEFT reads them; the tensors come last. */
export async function writeAdapterFolder(folder: string, adapter: Adapter, baseModel: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const config = {
    peft_type: "LORA",
    task_type: "CAUSAL_LM",
    base_model_name_or_path: baseModel,
    r: adapter.rank,
    lora_alpha: adapter.alpha,
    lora_dropout: 0,
    bias: "none",
    fan_in_fan_out: false,
    inference_mode: true,
    target_modules: LINEAR_LAYERS.map((name) => name.slice(name.indexOf(".") + 1)),
  };
  await writeFile(join(folder, "adapter_config.json"), `${JSON.stringify(config, null, 2)}\n`);
  const tensors = [...adapter.weights].map(([name, tensor]) => [`${PEFT_PREFIX}${name}`, tensor] as const);
  await writeSafetensors(join(folder, "adapter_model.safetensors"), new Map(tensors));
}

/**
 * Reads a LoRA adapter in PEFT layout. Linear layers that it leaves alone get factors of zeros.
 * @throws OsmosisError `NOT_FOUND` for a missing file, `VALIDATION` for another kind of adapter, or one for tensors that
 * the model does not have.
 */
export async function readAdapterFolder(folder: string, config: ModelConfig): Promise<Adapter> {
  const configPath = join(folder, "adapter_config.json");
  const text = await readFile(configPath, "utf8").catch((error: unknown) => {
    throw new OsmosisError("NOT_FOUND", `${configPath} cannot be read: ${errorMessage(error)}.`, {
      hint: "An adapter is a folder with adapter_config.json and adapter_model.safetensors.",
      cause: error,
    });
  });
  const parsed = AdapterConfig.safeParse(parseJson(configPath, text));
  if (!parsed.success) {
    throw new OsmosisError("VALIDATION", `${configPath}: ${z.prettifyError(parsed.error)}`, {
      hint: "Plain LoRA adapters with one rank are supported.",
    });
  }
  const { r: rank, lora_alpha: alpha } = parsed.data;
  const path = join(folder, "adapter_model.safetensors");
  const stored = await readSafetensors(path);
  const weights: Weights = new Map();
  for (const { path: layer, inputs, outputs } of adaptedLayers(config)) {
    const names = adapterNames(layer);
    for (const [name, shape] of [
      [names.A, [rank, inputs]],
      [names.B, [outputs, rank]],
    ] as const) {
      const tensor = stored.get(`${PEFT_PREFIX}${name}`);
      if (tensor !== undefined) requireShape(path, name, tensor.shape, shape);
      stored.delete(`${PEFT_PREFIX}${name}`);
      weights.set(name, tensor ?? { shape, data: new Float32Array(shape[0] * shape[1]) });
    }
  }
  const [unknown] = stored.keys();
  if (unknown !== undefined) {
    throw new OsmosisError("VALIDATION", `${path}: the model has no place for the tensor ${unknown}.`);
  }
  return { rank, alpha, weights };
}

function parseJson(path: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new OsmosisError("VALIDATION", `${path} is not JSON: ${errorMessage(error)}.`);
  }
}

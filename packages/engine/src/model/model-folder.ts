import { access } from "node:fs/promises";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { readModelConfig, type ModelConfig } from "../model-config.ts";
import { readSafetensors, type Weights } from "../safetensors.ts";
import { headName, parameterShapes } from "./parameters.ts";

export type LoadedModel = { readonly config: ModelConfig; readonly weights: Weights };

/**
 * Reads `config.json` and the safetensors, in one file or in shards, of a Hugging Face model folder.
 * @throws OsmosisError `NOT_FOUND` for a missing file, `VALIDATION` when a tensor is missing or has another shape than
 * the configuration asks for.
 */
export async function readModelFolder(folder: string): Promise<LoadedModel> {
  const config = await readModelConfig(folder);
  const index = join(folder, "model.safetensors.index.json");
  const path = (await exists(index)) ? index : join(folder, "model.safetensors");
  const stored = await readSafetensors(path);
  const weights: Weights = new Map();
  for (const [name, shape] of parameterShapes(config)) {
    const tensor = stored.get(name);
    if (tensor === undefined) {
      throw new OsmosisError("VALIDATION", `${path} has no tensor ${name}.`, {
        hint: `config.json describes a ${config.architecture} model with ${config.layers} layers${
          headName(config) === name ? " and a head of its own (tie_word_embeddings false)" : ""
        }; the two files do not belong together.`,
      });
    }
    requireShape(path, name, tensor.shape, shape);
    weights.set(name, tensor);
  }
  return { config, weights };
}

/** @throws OsmosisError `VALIDATION` when the shapes differ. */
export function requireShape(
  path: string,
  name: string,
  found: readonly number[],
  expected: readonly number[],
): void {
  if (found.join() === expected.join()) return;
  throw new OsmosisError(
    "VALIDATION",
    `${path}: tensor ${name} has shape [${found.join(", ")}], the model needs [${expected.join(", ")}].`,
  );
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

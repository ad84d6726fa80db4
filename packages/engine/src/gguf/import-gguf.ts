import { closeSync, fstatSync, openSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { errorMessage, OsmosisError } from "@osmosis/protocol";
import { nonFiniteTensors, writeSafetensors, type Weights } from "../safetensors.ts";
import { readFully } from "./cursor.ts";
import { readGgufHeader, type GgufTensor } from "./header.ts";
import { configFileOf, separateRotaryHalves, tensorNames } from "./model-layout.ts";
import { ROPE_FACTORS } from "./rope-factors.ts";
import { dequantise } from "./tensor-types.ts";
import { tokenizerFilesOf } from "./tokenizer-files.ts";

/**
 * Writes the model of a GGUF file as a Hugging Face model folder, its tokenizer and chat template included. Quantised
 * weights are de-quantised. They are stored in half precision, which rounds a de-quantised value by at most 2^-11 of
 * itself, unless the file holds matrices in single precision or `dtype` says F32. `config.json` is written last: a folder
 * that has it is complete. Takes four bytes of memory per parameter.
 * @throws OsmosisError `NOT_FOUND` for a missing file, `VALIDATION` for one that breaks the format, is cut off, or holds
 * a model that the engine does not build; the message names file and tensor.
 */
export async function importGguf(
  path: string,
  folder: string,
  { dtype }: { readonly dtype?: "F32" | "F16" } = {},
): Promise<void> {
  const fd = open(path);
  try {
    const header = readGgufHeader(path, { fd, size: fstatSync(fd).size });
    const factors = header.tensors.get(ROPE_FACTORS);
    const ropeFactors = factors === undefined ? undefined : readTensor(path, fd, factors);
    const { json, config } = configFileOf(path, header, ropeFactors);
    const files = tokenizerFilesOf(path, header);
    const weights: Weights = new Map();
    let isSingle = false;
    for (const [name, ggufName] of tensorNames(path, config, header)) {
      const place = header.tensors.get(ggufName);
      if (place === undefined) continue;
      const isRotary = config.architecture === "llama" && /\.self_attn\.[qk]_proj\.weight$/.test(name);
      const read = (): Float32Array => {
        const tensor = { shape: place.shape, data: readTensor(path, fd, place) };
        return isRotary ? separateRotaryHalves(tensor, config.headSize).data : tensor.data;
      };
      const data = read();
      const [broken] = nonFiniteTensors(new Map([[name, { shape: place.shape, data }]]));
      if (broken !== undefined) {
        throw new OsmosisError("VALIDATION", `${path}: tensor ${broken} holds NaN or infinity.`);
      }
      isSingle ||= (place.type === "F32" && place.shape.length > 1) || exceedsHalf(data);
      // Read anew whenever it is looked at: memory holds one tensor at a time, whatever the size of the model.
      weights.set(name, {
        shape: place.shape,
        get data() {
          return read();
        },
      });
    }
    await mkdir(folder, { recursive: true });
    const stored = dtype ?? (isSingle ? "F32" : "F16");
    await writeSafetensors(join(folder, "model.safetensors"), weights, { dtype: stored });
    await writeJson(join(folder, "tokenizer.json"), files.tokenizer);
    await writeJson(join(folder, "tokenizer_config.json"), files.tokenizerConfig);
    await writeJson(join(folder, "generation_config.json"), files.generationConfig);
    await writeJson(join(folder, "config.json"), {
      ...json,
      dtype: stored === "F32" ? "float32" : "float16",
    });
  } finally {
    closeSync(fd);
  }
}

const MAX_HALF = 65_504;

function exceedsHalf(values: Float32Array): boolean {
  return values.some((value) => Math.abs(value) > MAX_HALF);
}

function readTensor(path: string, fd: number, { type, begin, bytes }: GgufTensor): Float32Array {
  const buffer = Buffer.alloc(bytes);
  readFully(path, fd, buffer, begin);
  return dequantise(type, buffer);
}

function open(path: string): number {
  try {
    return openSync(path, "r");
  } catch (error) {
    throw new OsmosisError("NOT_FOUND", `${path} cannot be read: ${errorMessage(error)}.`, { cause: error });
  }
}

async function writeJson(path: string, value: unknown): Promise<void> {
  await writeFile(path, `${JSON.stringify(value, null, 1)}\n`);
}

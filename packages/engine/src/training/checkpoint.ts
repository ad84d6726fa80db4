import { copyFile, mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { requireShape } from "../model/model-folder.ts";
import { readSafetensors, writeSafetensors, type Weights, type WeightTensor } from "../safetensors.ts";
import { writeAdapterFolder } from "./adapter-folder.ts";
import type { Trainer } from "./trainer.ts";

const STATE_FILE = "trainer.safetensors";
const STEP = "step";
/** Float32 counts exactly to here. */
const MAX_STEP = 2 ** 24;

/**
 * Writes what Hugging Face tools read: an adapter in PEFT layout when the model trains one, otherwise a model folder
 * with the configuration and tokenizer files of `baseFolder`. The tensors come last, and appear whole or not at all.
 */
export async function saveWeights(trainer: Trainer, folder: string, baseFolder: string): Promise<void> {
  if (trainer.adapter !== undefined) return writeAdapterFolder(folder, trainer.adapter, baseFolder);
  await writeModelFolder(folder, trainer.weights, baseFolder);
}

/** Writes a model folder: weights in one file, and everything else that `baseFolder` holds. */
export async function writeModelFolder(folder: string, weights: Weights, baseFolder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const entry of await readdir(baseFolder, { withFileTypes: true })) {
    const isWeights = entry.name.includes(".safetensors");
    if (entry.isFile() && !isWeights) await copyFile(join(baseFolder, entry.name), join(folder, entry.name));
  }
  await writeSafetensors(join(folder, "model.safetensors"), weights);
}

/**
 * Writes one file with everything that the next step depends on: trainable weights, Adam's moments and step count, in
 * 32-bit floats, so that training continues bit for bit. A crash leaves the former file.
 */
export async function saveState(trainer: Trainer, folder: string): Promise<void> {
  if (trainer.adam.step > MAX_STEP) throw new Error(`step ${trainer.adam.step} does not fit`);
  const tensors = new Map<string, WeightTensor>([
    [STEP, { shape: [1], data: Float32Array.of(trainer.adam.step) }],
  ]);
  for (const { key, shape, data } of stateTensors(trainer)) tensors.set(key, { shape, data });
  await mkdir(folder, { recursive: true });
  await writeSafetensors(join(folder, STATE_FILE), tensors);
}

/**
 * Takes over what `saveState` wrote, in place.
 * @throws OsmosisError `NOT_FOUND` without the file, `VALIDATION` when it belongs to another model or method.
 */
export async function loadState(trainer: Trainer, folder: string): Promise<void> {
  const path = join(folder, STATE_FILE);
  const stored = await readSafetensors(path);
  const expected = stateTensors(trainer);
  const find = (key: string): WeightTensor => {
    const tensor = stored.get(key);
    if (tensor !== undefined) return tensor;
    throw new OsmosisError("VALIDATION", `${path} has no tensor ${key}.`, {
      hint: "Continue with the model and the method (full or lora) that the state was saved with.",
    });
  };
  // Checked as a whole before anything changes.
  for (const { key, shape } of expected) requireShape(path, key, find(key).shape, shape);
  const step = find(STEP).data[0] ?? 0;
  for (const { key, data } of expected) data.set(find(key).data);
  trainer.adam.step = step;
  trainer.stateReplaced();
}

function stateTensors({ weights, adapter, adam }: Trainer): ({ readonly key: string } & WeightTensor)[] {
  return [...(adapter?.weights ?? weights)].flatMap(([name, { shape, data }]) => [
    { key: `weights/${name}`, shape, data },
    { key: `adam_m/${name}`, shape, data: momentOf(adam.m, name) },
    { key: `adam_v/${name}`, shape, data: momentOf(adam.v, name) },
  ]);
}

function momentOf(moments: ReadonlyMap<string, Float32Array>, name: string): Float32Array {
  const moment = moments.get(name);
  if (moment === undefined) throw new Error(`no moment of ${name}`);
  return moment;
}

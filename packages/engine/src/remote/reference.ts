import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { z } from "zod";

/** The file of a folder whose weights lie at a trainer. */
export const REFERENCE_FILE = "remote-weights.json";

/**
 * Weights that lie at a trainer: where, but never the key. `version` counts the updates that they have seen; sampling is
 * from `path`, training goes on from `training_path`, where there is one. `api_key_name` names the secret that has the
 * key, where it is not the platform's own.
 */
const Reference = z.object({
  path: z.string(),
  training_path: z.string().optional(),
  version: z.int().nonnegative(),
  url: z.string().optional(),
  base_model: z.string().optional(),
  api_key_name: z.string().optional(),
});
export type Reference = z.output<typeof Reference>;

export async function writeReference(folder: string, reference: Reference): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, REFERENCE_FILE), `${JSON.stringify(reference, null, 2)}\n`);
}

/** @throws OsmosisError `VALIDATION` for a folder that holds no reference. */
export async function readReference(folder: string): Promise<Reference> {
  const text = await readFile(join(folder, REFERENCE_FILE), "utf8").catch(() => "null");
  const parsed = Reference.safeParse(parseJson(text));
  if (parsed.success) return parsed.data;
  throw new OsmosisError("VALIDATION", `${folder} holds no weights of a remote trainer.`, {
    hint: `Weights of this machine cannot be sent there; a folder that it saved has a ${REFERENCE_FILE}.`,
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { z } from "zod";

const FILE = "remote-weights.json";

/** Weights that lie at a trainer. `version` counts the updates that they have seen. */
const Reference = z.object({ path: z.string(), version: z.int().nonnegative() });

export async function writeReference(folder: string, reference: z.output<typeof Reference>): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, FILE), JSON.stringify(reference));
}

/** @throws OsmosisError `VALIDATION` for a folder that holds no reference. */
export async function readReference(folder: string): Promise<z.output<typeof Reference>> {
  const text = await readFile(join(folder, FILE), "utf8").catch(() => "null");
  const parsed = Reference.safeParse(JSON.parse(text));
  if (parsed.success) return parsed.data;
  throw new OsmosisError("VALIDATION", `${folder} holds no weights of a remote trainer.`, {
    hint: `Weights of this machine cannot be sent there; a folder that it saved has a ${FILE}.`,
  });
}

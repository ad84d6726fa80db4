import { parseModelConfig } from "@osmosis/engine";
import { OsmosisError } from "@osmosis/protocol";
import type { BlobStore } from "../../blobs/blob-store.ts";
import type { StoredFile } from "./tables.ts";

/** What the config.json of a model says; undefined where the file is lost, or the engine does not build the model. */
export async function storedConfig(
  blobs: BlobStore,
  files: readonly StoredFile[],
): Promise<ReturnType<typeof parseModelConfig> | undefined> {
  const file = files.find(({ name }) => name === "config.json");
  const blob = file === undefined ? undefined : await blobs.get(file.key);
  if (blob === undefined) return undefined;
  try {
    return parseModelConfig(await new Response(blob.body).json());
  } catch (error) {
    if (error instanceof OsmosisError || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

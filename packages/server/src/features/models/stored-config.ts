import { OsmosisError } from "@osmosis/protocol";
import type { BlobStore } from "../../blobs/blob-store.ts";
import type { StoredFile } from "./tables.ts";

/** What the config.json of a model says; undefined where the file is lost, or `parse` refuses it. */
export async function storedConfig<Config>(
  blobs: BlobStore,
  files: readonly StoredFile[],
  parse: (value: unknown) => Config,
): Promise<Config | undefined> {
  const file = files.find(({ name }) => name === "config.json");
  const blob = file === undefined ? undefined : await blobs.get(file.key);
  if (blob === undefined) return undefined;
  try {
    return parse(await new Response(blob.body).json());
  } catch (error) {
    if (error instanceof OsmosisError || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

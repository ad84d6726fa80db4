import { loadRuntime } from "../graph/session.ts";
import { readModelFolder } from "../model/model-folder.ts";
import { readAdapterFolder } from "./adapter-folder.ts";
import { writeModelFolder } from "./checkpoint.ts";
import { mergeAdapter } from "./merge.ts";

/**
 * Writes a whole model that answers as the base model with the adapter does: the configuration and tokenizer of the
 * base, and its weights with the adapter's effect added, in 32-bit floats.
 *
 * @throws OsmosisError `NOT_FOUND` for missing files, `VALIDATION` when the two do not belong together.
 */
export async function mergeAdapterFolder(
  source: { readonly folder: string; readonly adapter: string },
  target: string,
): Promise<void> {
  const { config, weights } = await readModelFolder(source.folder);
  const adapter = await readAdapterFolder(source.adapter, config);
  const merged = await mergeAdapter(await loadRuntime({ threads: 1 }), config, weights, adapter);
  await writeModelFolder(target, merged, source.folder);
}

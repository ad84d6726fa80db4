import { mkdir, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { gunzip } from "node:zlib";
import { promisify } from "node:util";
import { readTar } from "./tar.ts";
import type { WireClient } from "./wire-client.ts";

/** What an adapter consists of; whatever else an archive holds is left out. */
const WANTED = new Set(["adapter_config.json", "adapter_model.safetensors"]);

const unpack = promisify(gunzip);

/**
 * Brings the adapter behind a path of saved weights into a folder, where the trainer hands it out.
 *
 * @returns whether it did.
 * @throws OsmosisError `VALIDATION` for an archive that cannot be read.
 */
export async function downloadAdapter(
  wire: WireClient,
  path: string,
  folder: string,
  signal: AbortSignal,
): Promise<boolean> {
  // The kind is missing in the paths of some servers.
  const parts = /^tinker:\/\/([^/]+)\/(?:([^/]+)\/)?([^/]+)$/.exec(path);
  if (parts === null) return false;
  const [run = "", kind = "sampler_weights", name = ""] = parts
    .slice(1)
    .map((part: string | undefined) => (part === undefined ? undefined : encodeURIComponent(part)));
  // Tinker names a checkpoint with its kind, SkyRL without.
  const archive =
    (await wire.download(`/training_runs/${run}/checkpoints/${kind}/${name}/archive`, signal)) ??
    (await wire.download(`/training_runs/${run}/checkpoints/${name}/archive`, signal));
  if (archive === undefined) return false;
  const isGzip = archive[0] === 0x1f && archive[1] === 0x8b;
  const files = readTar(isGzip ? await unpack(archive) : archive);
  const wanted = [...files].filter(([file]) => WANTED.has(basename(file)));
  if (new Set(wanted.map(([file]) => basename(file))).size < WANTED.size) return false;
  await mkdir(folder, { recursive: true });
  for (const [file, content] of wanted) await writeFile(join(folder, basename(file)), content);
  return true;
}

import { mkdir, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { gunzip } from "node:zlib";
import { promisify } from "node:util";
import { errorMessage } from "@osmosis/protocol";
import { z } from "zod";
import { readTar } from "./tar.ts";
import type { WireClient } from "./wire-client.ts";

const CONFIG = "adapter_config.json";
const Config = z.record(z.string(), z.unknown());

/** What an adapter consists of; whatever else an archive holds is left out. */
const WANTED = new Set([CONFIG, "adapter_model.safetensors"]);

const unpack = promisify(gunzip);

const NONE = "The trainer handed out no archive of the weights";

/**
 * Brings the adapter behind a path of saved weights into a folder, where the trainer hands it out.
 *
 * @returns why it did not, for a person; undefined when it did.
 */
export async function downloadAdapter(
  wire: WireClient,
  path: string,
  folder: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  // The kind is missing in the paths of some servers.
  const parts = /^tinker:\/\/([^/]+)\/(?:([^/]+)\/)?([^/]+)$/.exec(path);
  if (parts === null) return NONE;
  const [run = "", kind = "sampler_weights", name = ""] = parts
    .slice(1)
    .map((part: string | undefined) => (part === undefined ? undefined : encodeURIComponent(part)));
  // Tinker names a checkpoint with its kind, SkyRL without.
  const archive =
    (await wire.download(`/training_runs/${run}/checkpoints/${kind}/${name}/archive`, signal)) ??
    (await wire.download(`/training_runs/${run}/checkpoints/${name}/archive`, signal));
  if (archive === undefined) return NONE;
  const files = await filesOf(archive);
  if (typeof files === "string") return `The trainer's archive of the weights cannot be read (${files})`;
  const wanted = [...files].filter(([file]) => WANTED.has(basename(file)));
  if (new Set(wanted.map(([file]) => basename(file))).size < WANTED.size) {
    return "The trainer's archive of the weights holds no adapter";
  }
  await mkdir(folder, { recursive: true });
  for (const [file, content] of wanted) await writeFile(join(folder, basename(file)), content);
  return undefined;
}

/** The files, or why there are none. */
async function filesOf(archive: Uint8Array): Promise<ReadonlyMap<string, Uint8Array> | string> {
  const isGzip = archive[0] === 0x1f && archive[1] === 0x8b;
  try {
    const files = readTar(isGzip ? await unpack(archive) : archive);
    for (const [file, content] of files) {
      // Whoever keeps it writes the name of the base model into it.
      if (basename(file) === CONFIG) Config.parse(JSON.parse(new TextDecoder().decode(content)));
    }
    return files;
  } catch (error) {
    return errorMessage(error);
  }
}

import { createHash, randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { copyFile, link, mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Transform, type Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { OsmosisError, type FileRef } from "@osmosis/protocol";
import type { PlatformLink } from "./platform-link.ts";

/** Files by content, each fetched once: models. Several may ask for the same file at the same time. */
export type FileCache = {
  /**
   * Makes a folder that holds the files under their names. What is needed once only, as a state or the weights of one
   * step, is fetched into the folder, and not kept beyond it.
   *
   * @throws OsmosisError `STORAGE` when the platform has lost a file, or what arrived is not what it announced.
   */
  folderOf(
    files: readonly FileRef[],
    folder: string,
    signal: AbortSignal,
    use?: "once" | "often",
  ): Promise<string>;
};

export function openFileCache(root: string, link: Pick<PlatformLink, "read">): FileCache {
  /** When the files that were found sound had been written last. */
  const seen = new Map<string, number>();
  let tidied: Promise<void> | undefined;

  return {
    async folderOf(files, folder, signal, use = "often") {
      await rm(folder, { recursive: true, force: true });
      await mkdir(folder, { recursive: true });
      for (const file of files) {
        const target = join(folder, file.name);
        if (use === "once") await fetchTo(target, file, signal);
        else await linkOrCopy(await fetchOnce(file, signal), target);
      }
      return folder;
    },
  };

  async function fetchOnce(file: FileRef, signal: AbortSignal): Promise<string> {
    const path = join(root, file.sha256.slice(0, 2), file.sha256);
    if (await isSound(path, file)) return path;
    tidied ??= removeLeftovers(root);
    await tidied;
    await fetchTo(path, file, signal);
    return path;
  }

  async function fetchTo(path: string, file: FileRef, signal: AbortSignal): Promise<void> {
    await mkdir(dirname(path), { recursive: true });
    // A replay and a run of this worker may fetch the same file at once.
    const partial = `${path}.${randomUUID()}.part`;
    try {
      const sha256 = await receive(file, partial, signal);
      if (sha256 !== file.sha256) {
        throw new OsmosisError(
          "STORAGE",
          `${file.name} arrived damaged: SHA-256 ${sha256}, announced ${file.sha256}.`,
          {
            hint: "Check the platform's data folder; then submit the run again.",
          },
        );
      }
      await rename(partial, path);
    } finally {
      await rm(partial, { force: true });
    }
  }

  /** Runs have links to these files, and disks fail, so what was fetched by an earlier process is read once again. */
  async function isSound(path: string, file: FileRef): Promise<boolean> {
    const found = await stat(path).catch(() => undefined);
    if (found?.size !== file.size_bytes) return false;
    if (seen.get(path) === found.mtimeMs) return true;
    const hash = createHash("sha256");
    await pipeline(createReadStream(path), hash);
    if (hash.digest("hex") !== file.sha256) return false;
    seen.set(path, found.mtimeMs);
    return true;
  }

  /** Fetches a file and says which SHA-256 arrived. */
  async function receive(file: FileRef, partial: string, signal: AbortSignal): Promise<string> {
    const take = async (body: Readable): Promise<string> => {
      const hash = createHash("sha256");
      const tap = new Transform({
        transform(chunk: Buffer, _encoding, done) {
          hash.update(chunk);
          done(null, chunk);
        },
      });
      await pipeline(body, tap, createWriteStream(partial), { signal });
      return hash.digest("hex");
    };
    try {
      return await link.read(file.url, take, { signal });
    } catch (error) {
      if (!(error instanceof OsmosisError) || error.code !== "PLATFORM_ERROR") throw error;
      throw new OsmosisError("STORAGE", `The platform cannot give ${file.name}: ${error.message}`, {
        hint: "When it is gone from the platform's data folder, import the model again with --overwrite; then submit the run again.",
        cause: error,
      });
    }
  }
}

/** Longer than a file that still comes can stay as it is: nothing waits for the platform for more than ten minutes. */
const LEFT_AFTER_MS = 3600_000;

/** Deletes what a killed worker had fetched a part of; another worker may be fetching into this folder. */
async function removeLeftovers(root: string): Promise<void> {
  const names = await readdir(root, { recursive: true }).catch(() => []);
  for (const name of names.filter((one) => one.endsWith(".part"))) {
    const path = join(root, name);
    const found = await stat(path).catch(() => undefined);
    if (found !== undefined && Date.now() - found.mtimeMs > LEFT_AFTER_MS) await rm(path, { force: true });
  }
}

async function linkOrCopy(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true });
  try {
    await link(from, to);
  } catch {
    // Another file system, or one without hard links.
    await copyFile(from, to);
  }
}

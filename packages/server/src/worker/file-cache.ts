import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { copyFile, link, mkdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { OsmosisError, type FileRef } from "@osmosis/protocol";
import type { PlatformLink } from "./platform-link.ts";

/** Files by content, each fetched once: models and trainer states. */
export type FileCache = {
  /**
   * Makes a folder that holds the files under their names.
   *
   * @throws OsmosisError `STORAGE` when what arrived is not what the platform announced.
   */
  folderOf(files: readonly FileRef[], folder: string, signal: AbortSignal): Promise<string>;
};

export function openFileCache(root: string, link: Pick<PlatformLink, "read">): FileCache {
  return {
    async folderOf(files, folder, signal) {
      await rm(folder, { recursive: true, force: true });
      await mkdir(folder, { recursive: true });
      for (const file of files) {
        const cached = await fetchOnce(file, signal);
        const target = join(folder, file.name);
        await mkdir(dirname(target), { recursive: true });
        await linkOrCopy(cached, target);
      }
      return folder;
    },
  };

  async function fetchOnce(file: FileRef, signal: AbortSignal): Promise<string> {
    const path = join(root, file.sha256.slice(0, 2), file.sha256);
    const found = await stat(path).catch(() => undefined);
    if (found?.size === file.size_bytes) return path;
    await mkdir(dirname(path), { recursive: true });
    const partial = `${path}.${process.pid}.part`;
    const sha256 = await link.read(
      file.url,
      async (body) => {
        const hash = createHash("sha256");
        const tap = new Transform({
          transform(chunk: Buffer, _encoding, done) {
            hash.update(chunk);
            done(null, chunk);
          },
        });
        await pipeline(body, tap, createWriteStream(partial), { signal });
        return hash.digest("hex");
      },
      { signal },
    );
    if (sha256 !== file.sha256) {
      await rm(partial, { force: true });
      throw new OsmosisError(
        "STORAGE",
        `${file.name} arrived damaged: SHA-256 ${sha256}, announced ${file.sha256}.`,
        {
          hint: "Check the platform's data folder; then submit the run again.",
        },
      );
    }
    await rename(partial, path);
    return path;
  }
}

async function linkOrCopy(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch {
    // Another file system, or one without hard links.
    await copyFile(from, to);
  }
}

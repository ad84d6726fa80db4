import { createHash, randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { parseModelConfig } from "@osmosis/engine";
import { OsmosisError, holdWeights } from "@osmosis/protocol";
import type { Platform } from "../../platform.ts";
import { storedConfig } from "../models/stored-config.ts";
import type { StoredFile } from "../models/tables.ts";

/** A base model as a folder that the engine opens. */
export type BaseFolder = { readonly name: string; readonly folder: string };

/**
 * The base models of this server as folders. Their files are blobs; a folder is made from them at the first use and
 * named by their content, so one that is in use never changes. It is a cache: it may be deleted while nobody trains.
 */
export function createBaseFolders(parts: Pick<Platform, "db" | "blobs"> & { readonly cacheFolder: string }) {
  const { db, blobs, cacheFolder } = parts;
  const making = new Map<string, Promise<void>>();

  return {
    /** Those whose architecture the engine builds. */
    async list(): Promise<{ name: string; contextLength: number; vocabSize: number }[]> {
      const offered = [];
      for (const { name, files } of await rows()) {
        const config = await storedConfig(blobs, files, parseModelConfig);
        if (config === undefined) continue;
        offered.push({ name, contextLength: config.contextLength, vocabSize: config.vocabSize });
      }
      return offered;
    },

    /** @throws OsmosisError `NOT_FOUND`, naming those that there are. */
    async open(name: string): Promise<BaseFolder> {
      const known = await rows();
      const found = known.find((row) => row.name === name);
      if (found === undefined) {
        throw new OsmosisError("NOT_FOUND", `There is no base model ${name}.`, {
          hint: `There are ${known.map((row) => row.name).join(", ") || "none"}.`,
        });
      }
      const content = found.files.map((file) => `${file.name} ${file.sha256}`).join("\n");
      const folder = join(cacheFolder, createHash("sha256").update(content).digest("hex"));
      // Two that need it at once wait for the same copy.
      const made = making.get(folder) ?? make(folder, found.files).finally(() => making.delete(folder));
      making.set(folder, made);
      await made;
      return { name, folder };
    },
  };

  /** Those that have weights here. */
  async function rows() {
    const known = await db
      .selectFrom("base_models")
      .select(["name", "files"])
      .where("is_available", "=", true)
      .orderBy("name")
      .execute();
    return known.filter(({ files }) => holdWeights(files));
  }

  async function make(folder: string, files: readonly StoredFile[]): Promise<void> {
    if ((await stat(folder).catch(() => undefined)) !== undefined) return;
    const incoming = join(cacheFolder, `incoming-${randomUUID()}`);
    try {
      await mkdir(incoming, { recursive: true });
      for (const { name, key } of files) {
        const blob = await blobs.get(key);
        if (blob === undefined) throw new OsmosisError("STORAGE", `The file ${name} of the model is gone.`);
        await pipeline(blob.body, createWriteStream(join(incoming, name)));
      }
      await rename(incoming, folder);
    } finally {
      await rm(incoming, { recursive: true, force: true });
    }
  }
}

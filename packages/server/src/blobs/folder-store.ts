import { createHash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, readdir, rename, rm, stat, type FileHandle } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import { OsmosisError } from "@osmosis/protocol";
import { storageProblem } from "../database/storage-problem.ts";
import { checkBlobKey } from "./blob-key.ts";
import type { BlobBody, BlobInfo, BlobStore, ByteRange, StoredBlob } from "./blob-store.ts";

/**
 * Blobs as files below `folder`. A body is written to a file aside, flushed to the disk and renamed into place. The
 * folder of a key's segment carries a `~`, which no file name ends with, so the keys `a` and `a/b` can both exist.
 */
export function openFolderStore(folder: string): BlobStore {
  const incoming = join(folder, "incoming");

  const pathOf = (key: string) => {
    const names = checkBlobKey(key).map(escapeName);
    const file = names.pop() ?? "";
    return join(folder, "blobs", ...names.map((name) => `${name}~`), file);
  };

  async function store(key: string, write: (file: FileHandle) => Promise<StoredBlob>): Promise<StoredBlob> {
    const path = pathOf(key);
    const aside = join(incoming, randomUUID());
    try {
      await mkdir(incoming, { recursive: true });
      const file = await open(aside, "wx", 0o600);
      let stored: StoredBlob;
      try {
        stored = await write(file);
        await file.sync();
      } finally {
        await file.close();
      }
      await mkdir(dirname(path), { recursive: true });
      await rename(aside, path);
      await syncFolder(dirname(path));
      return stored;
    } catch (error) {
      await rm(aside, { force: true }).catch(() => {});
      if (error instanceof OsmosisError) throw error;
      throw storageProblem(error, folder) ?? error;
    }
  }

  return {
    put(key, body, { maxBytes = Infinity, signal } = {}) {
      return store(key, (file) => writeBodies(file, [body], maxBytes, signal));
    },

    compose(key, partKeys) {
      const paths = partKeys.map(pathOf);
      return store(key, async (file) => {
        for (const [index, path] of paths.entries()) {
          if ((await statFile(path)) === undefined) {
            throw new OsmosisError("NOT_FOUND", `The part ${partKeys[index]} was not uploaded.`);
          }
        }
        return await writeBodies(
          file,
          paths.map((path) => streamFile(path)),
        );
      });
    },

    async get(key, range) {
      const info = await this.stat(key);
      if (info === undefined) return undefined;
      return { info, body: streamFile(pathOf(key), range, info.sizeBytes) };
    },

    async stat(key) {
      const found = await statFile(pathOf(key));
      return found === undefined ? undefined : { key, ...found };
    },

    async delete(key) {
      await rm(pathOf(key), { force: true });
    },

    async *list(prefix) {
      const names = prefix === "" ? [] : checkBlobKey(prefix).map((segment) => `${escapeName(segment)}~`);
      yield* listFolder(join(folder, "blobs", ...names), prefix);
    },
  };
}

async function writeBodies(
  file: FileHandle,
  bodies: readonly BlobBody[],
  maxBytes = Infinity,
  signal?: AbortSignal,
): Promise<StoredBlob> {
  const hash = createHash("sha256");
  let sizeBytes = 0;
  for (const body of bodies) {
    for await (const chunk of body instanceof Uint8Array ? [body] : body) {
      signal?.throwIfAborted();
      sizeBytes += chunk.byteLength;
      if (sizeBytes > maxBytes) {
        throw new OsmosisError(
          "VALIDATION",
          `The body is longer than the ${maxBytes} bytes that were announced.`,
        );
      }
      hash.update(chunk);
      await file.appendFile(chunk);
    }
  }
  return { sizeBytes, sha256: hash.digest("hex") };
}

function streamFile(path: string, range?: ByteRange, sizeBytes = Infinity): ReadableStream<Uint8Array> {
  if (range !== undefined && range.start >= sizeBytes) return new Blob([]).stream();
  const bounds =
    range === undefined ? {} : { start: range.start, ...(range.end === undefined ? {} : { end: range.end }) };
  // Node's and the DOM's declarations of the same web stream differ in name only.
  return Readable.toWeb(createReadStream(path, bounds)) as ReadableStream<Uint8Array>;
}

async function statFile(path: string): Promise<{ sizeBytes: number; modifiedAt: Date } | undefined> {
  try {
    const found = await stat(path);
    return found.isFile() ? { sizeBytes: found.size, modifiedAt: found.mtime } : undefined;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

async function* listFolder(path: string, prefix: string): AsyncIterable<BlobInfo> {
  const entries = await readdir(path, { withFileTypes: true }).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  const named = entries
    .map((entry) => ({
      entry,
      name: unescapeName(entry.isDirectory() ? entry.name.slice(0, -1) : entry.name),
    }))
    .toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.entry.isDirectory() ? 1 : -1));
  for (const { entry, name } of named) {
    const key = prefix === "" ? name : `${prefix}/${name}`;
    if (entry.isDirectory()) {
      yield* listFolder(join(path, entry.name), key);
    } else {
      const found = await statFile(join(path, entry.name));
      if (found !== undefined) yield { key, ...found };
    }
  }
}

/** A renamed file is durable when its folder is. Folders cannot be flushed on every system; there the rename must do. */
async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, "r").catch(() => undefined);
  await handle?.sync().catch(() => {});
  await handle?.close();
}

function escapeName(segment: string): string {
  return segment.replaceAll("%", "%25").replaceAll("~", "%7E");
}

function unescapeName(name: string): string {
  return name.replaceAll("%7E", "~").replaceAll("%25", "%");
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR");
}

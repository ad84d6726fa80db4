import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rm, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { storageProblem } from "./storage-problem.ts";

/** What an empty database, its journal and a first run take, with some room. */
const NEEDED_BYTES = 128 * 1024 ** 2;

/**
 * Makes the data folder if need be, and makes sure that it can be written: the embedded database says nothing
 * understandable when it cannot.
 *
 * @throws {OsmosisError} STORAGE naming the folder and the remedy.
 */
export async function prepareDataFolder(folder: string): Promise<void> {
  try {
    await makeFolder(folder);
    const probe = join(folder, `probe-${randomUUID()}`);
    const file = await open(probe, "wx", 0o600);
    try {
      await file.writeFile(new Uint8Array(64 * 1024));
      await file.sync();
    } finally {
      await file.close();
      await rm(probe, { force: true });
    }
  } catch (error) {
    throw storageProblem(error, folder) ?? error;
  }
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize < NEEDED_BYTES) {
    const mebibytes = Math.floor((bavail * bsize) / 1024 ** 2);
    throw new OsmosisError(
      "STORAGE",
      `The data folder ${folder} is nearly full: ${mebibytes} MiB are free.`,
      {
        hint: `Free at least ${NEEDED_BYTES / 1024 ** 2} MiB, or choose another folder with --data.`,
      },
    );
  }
}

/** Where things are made aside before they are renamed into place, below the data folder. */
const PLACES = ["git", "cache/packages", "cache/seed", "blobs/incoming"];

/** Removes what a killed server had half made. Only whoever holds the folder's lock may do this. */
export async function removeLeftovers(folder: string): Promise<void> {
  for (const place of PLACES) {
    const names = await readdir(join(folder, place)).catch(() => []);
    const leftovers = names.filter((name) => place === "blobs/incoming" || name.startsWith("incoming-"));
    for (const name of leftovers) await rm(join(folder, place, name), { recursive: true, force: true });
  }
}

/** `mkdir` with its parents. Node's own recursive form never ends below folders that refuse children, as `/proc`. */
async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "EEXIST") return;
    if (code !== "ENOENT" || dirname(path) === path) throw error;
    await makeFolder(dirname(path));
    await mkdir(path, { mode: 0o700 });
  }
}

import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import { errorMessage, OsmosisError } from "@osmosis/protocol";
import { makeFolder } from "../output/target-folder.ts";

const REMEDIES: Readonly<Record<string, string>> = {
  ENOSPC: "The disk is full: free some space, or choose another folder with --data.",
  EDQUOT: "Your disk quota is used up: free some space, or choose another folder with --data.",
  EROFS: "The file system is read-only: choose a folder that can be written with --data.",
  EACCES: "You may not write there: change the folder's owner, or choose another with --data.",
  EPERM: "You may not write there: change the folder's owner, or choose another with --data.",
  ENOENT: "No folder can be made there: choose another one with --data.",
  ENOTDIR: "A part of this path is a file: choose another folder with --data.",
  EEXIST: "This path is a file: choose another folder with --data.",
};

const PROBE_BYTES = 64 * 1024;

/**
 * Makes the data folder and writes a little into it, so that a full or read-only disk is told before anything starts.
 *
 * @throws OsmosisError `STORAGE`
 */
export async function prepareDataFolder(folder: string): Promise<void> {
  try {
    await makeFolder(join(folder, "logs"), 0o700);
    const probe = join(folder, ".write-probe");
    try {
      const file = await open(probe, "w");
      try {
        await file.writeFile(Buffer.alloc(PROBE_BYTES, 1));
        await file.sync();
      } finally {
        await file.close();
      }
    } finally {
      await rm(probe, { force: true });
    }
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    throw new OsmosisError(
      "STORAGE",
      `The data folder ${folder} cannot be written: ${errorMessage(error)}.`,
      {
        hint: REMEDIES[code] ?? "Choose another folder with --data.",
        cause: error,
      },
    );
  }
}

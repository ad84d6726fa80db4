import { execFile } from "node:child_process";
import { mkdtemp, open, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A file system of its own, of a given size. */
export type SmallDisk = AsyncDisposable & {
  readonly folder: string;
  /** Takes every byte that is left. */
  readonly fill: () => Promise<void>;
  /** Gives them back. */
  readonly free: () => Promise<void>;
  readonly makeReadOnly: () => Promise<void>;
};

/** Why there can be no such disk here; undefined where there can be. Only root may mount, and only on Linux. */
export async function whyNoDisk(): Promise<string | undefined> {
  if (process.platform !== "linux") return "tmpfs exists on Linux only";
  if (process.getuid?.() !== 0) return "only root may mount";
  try {
    await using disk = await mountSmallDisk(1);
    return disk.folder === "" ? "no folder" : undefined;
  } catch {
    return "this container may not mount";
  }
}

export async function mountSmallDisk(megabytes: number): Promise<SmallDisk> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "osmosis-disk-")));
  try {
    await run("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "osmosis-test", folder]);
  } catch (error) {
    await rm(folder, { recursive: true });
    throw error;
  }
  const filler = join(folder, "filler");
  return {
    folder,
    async fill() {
      const file = await open(filler, "a");
      try {
        for (let size = 1 << 20; size >= 1;) {
          // The end of the disk may lie within a block: go on with smaller ones.
          const { bytesWritten } = await file.write(Buffer.alloc(size, 1)).catch(() => ({ bytesWritten: 0 }));
          if (bytesWritten < size) size >>= 1;
        }
      } finally {
        await file.close();
      }
    },
    free: () => rm(filler, { force: true }),
    async makeReadOnly() {
      await run("mount", ["-o", "remount,ro", folder]);
    },
    async [Symbol.asyncDispose]() {
      await run("umount", ["--lazy", folder]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

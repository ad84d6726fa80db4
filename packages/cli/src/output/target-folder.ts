import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";

/**
 * Makes a folder and those above it, one level at a time. A recursive `mkdir` of Node says of a read-only disk that the
 * parent does not exist, and never ends where the system allows no folder, as below `/proc`.
 *
 * @throws what the operating system says of the level that it refuses
 */
export async function makeFolder(path: string, mode = 0o777): Promise<void> {
  const refusal = await tryFolder(path, mode);
  if (refusal === undefined) return;
  const hasParent = !("code" in refusal && refusal.code === "ENOENT") || dirname(path) === path;
  if (hasParent) throw refusal;
  await makeFolder(dirname(path), mode);
  const again = await tryFolder(path, mode);
  if (again !== undefined) throw again;
}

/** Answers why there is no folder; undefined when there is one, whoever made it. */
async function tryFolder(path: string, mode: number): Promise<Error | undefined> {
  try {
    await mkdir(path, { mode });
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const isThere = "code" in error && error.code === "EEXIST" && (await stat(path)).isDirectory();
    return isThere ? undefined : error;
  }
  return undefined;
}

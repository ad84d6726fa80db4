import { randomUUID } from "node:crypto";
import { lockFolder } from "../database/folder-lock.ts";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";

/**
 * The name of a worker that was given none: the host with a suffix that stays with the data folder, so a worker that is
 * started again is the same one and gives up at once what it held before. While another worker runs on the folder, the
 * suffix is new: two workers of one name would take each other's runs.
 */
export async function defaultWorkerName(
  dataFolder: string,
  host: string,
): Promise<{ name: string } & AsyncDisposable> {
  const nothing = async (): Promise<void> => {};
  const fresh = `${host}-${randomUUID().slice(0, 8)}`;
  await mkdir(dataFolder, { recursive: true, mode: 0o700 });
  let lock: AsyncDisposable;
  try {
    lock = await lockFolder(dataFolder);
  } catch (error) {
    if (!(error instanceof OsmosisError)) throw error;
    return { name: fresh, [Symbol.asyncDispose]: nothing };
  }
  const path = join(dataFolder, "worker-name");
  const known = (await readFile(path, "utf8").catch(() => "")).trim();
  const name = known.startsWith(`${host}-`) ? known : fresh;
  if (name !== known) await writeFile(path, `${name}\n`);
  return { name, [Symbol.asyncDispose]: () => lock[Symbol.asyncDispose]() };
}

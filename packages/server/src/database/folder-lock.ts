import { open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";

/**
 * The lock of a data folder: a file that names the process which holds it. Two servers on one embedded database would
 * destroy it. A process that was killed leaves its file behind, so a lock counts only while the process that it names
 * lives; on Linux the start time of the process is compared as well, because process ids are used again.
 *
 * @throws {OsmosisError} CONFLICT while another live process holds the folder.
 */
export async function lockFolder(folder: string): Promise<AsyncDisposable> {
  const path = join(folder, "server.lock");
  const own = { pid: process.pid, startedAt: await processStart(process.pid) };
  for (let attempt = 0; attempt < 5; attempt += 1) {
    if (await createExclusively(path, JSON.stringify(own))) {
      return {
        async [Symbol.asyncDispose]() {
          await rm(path, { force: true });
        },
      };
    }
    const holder = await readHolder(path);
    if (holder !== undefined && (await isAlive(holder))) {
      throw new OsmosisError("CONFLICT", `The data folder ${folder} is in use by process ${holder.pid}.`, {
        hint: `Stop that server first, or start this one with another folder: --data <folder>.`,
      });
    }
    await removeStale(path);
  }
  throw new OsmosisError("CONFLICT", `The lock ${path} changes hands all the time.`, {
    hint: "Start one server at a time on a data folder.",
  });
}

interface Holder {
  pid: number;
  startedAt: string | undefined;
}

async function createExclusively(path: string, text: string): Promise<boolean> {
  try {
    const file = await open(path, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    return true;
  } catch (error) {
    if (isCode(error, "EEXIST")) return false;
    throw error;
  }
}

/** `undefined` when the file is gone or was cut short by a crash: nobody holds such a lock. */
async function readHolder(path: string): Promise<Holder | undefined> {
  try {
    const parsed: unknown = JSON.parse(await readFile(path, "utf8"));
    if (typeof parsed !== "object" || parsed === null || !("pid" in parsed)) return undefined;
    if (typeof parsed.pid !== "number") return undefined;
    const startedAt =
      "startedAt" in parsed && typeof parsed.startedAt === "string" ? parsed.startedAt : undefined;
    return { pid: parsed.pid, startedAt };
  } catch {
    return undefined;
  }
}

async function isAlive(holder: Holder): Promise<boolean> {
  if (holder.pid === process.pid) return holder.startedAt === (await processStart(process.pid));
  try {
    process.kill(holder.pid, 0);
  } catch (error) {
    // EPERM means that the process lives and belongs to somebody else.
    return isCode(error, "EPERM");
  }
  const startedAt = await processStart(holder.pid);
  if (startedAt === "ended") return false;
  return startedAt === undefined || holder.startedAt === undefined || startedAt === holder.startedAt;
}

/** Moves the stale file away before deleting it, so of two processes that see it only one removes it. */
async function removeStale(path: string): Promise<void> {
  const aside = `${path}.stale-${process.pid}`;
  try {
    await rename(path, aside);
  } catch (error) {
    if (!isCode(error, "ENOENT")) throw error;
  }
  await rm(aside, { force: true });
}

/**
 * Clock ticks since boot at which the process started: field 22 of its stat file. `undefined` where there is no such
 * file; "ended" for a process that is over but that its parent has not asked about: in a container whose first process
 * does not, a killed server would otherwise hold its folder for ever.
 */
async function processStart(pid: number): Promise<string | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    // The second field, the command, may hold spaces and brackets: count from the last bracket.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? "ended" : fields[19];
  } catch {
    return undefined;
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}

import { execFile } from "node:child_process";
import { readlink } from "node:fs/promises";
import { promisify } from "node:util";
import { until } from "./until.ts";

export type FoundProcess = { readonly pid: number; readonly parent: number; readonly command: string };

const run = promisify(execFile);

/**
 * The live processes that belong to a folder: it is named in their command line, or is around their working directory
 * (told by Linux only). Everything that a platform starts is found so, whoever its parent is by now.
 */
export async function processesOf(folder: string): Promise<FoundProcess[]> {
  const { stdout } = await run("ps", ["-A", "-ww", "-o", "pid=,ppid=,stat=,args="], { maxBuffer: 1e8 });
  const all = stdout.split("\n").flatMap((line) => {
    const match = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*)$/.exec(line);
    // A zombie is a line in a table; its parent, outside of this test, has not read it.
    if (match === null || match[3]?.startsWith("Z") === true) return [];
    return [{ pid: Number(match[1]), parent: Number(match[2]), command: match[4] ?? "" }];
  });
  const belongs = await Promise.all(
    all.map(async ({ pid, command }) => {
      if (pid === process.pid) return false;
      if (command.includes(folder)) return true;
      const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => "");
      return cwd === folder || cwd.startsWith(`${folder}/`);
    }),
  );
  return all.filter((_, index) => belongs[index]);
}

/** Waits until no process of the folder is left; fails with their command lines. */
export async function nothingLeft(folder: string, timeoutMs = 15_000): Promise<void> {
  let left: FoundProcess[] = [];
  await until(
    "no process is left",
    async () => {
      left = await processesOf(folder);
      return left.length === 0;
    },
    { timeoutMs },
  ).catch((error: unknown) => {
    throw new Error(left.map(({ pid, command }) => `${pid} ${command}`).join("\n"), { cause: error });
  });
}

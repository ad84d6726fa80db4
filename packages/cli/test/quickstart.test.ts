import { execFile } from "node:child_process";
import { readlink } from "node:fs/promises";
import { promisify } from "node:util";
import { join } from "node:path";
import { expect, test } from "vitest";
import { startCommand } from "./child.ts";
import { temporaryFolder } from "./folder.ts";
import { until } from "./until.ts";

const run = promisify(execFile);

test.each([["osmosis up"], ["osmosis workspace create"], ["osmosis dataset upload"]])(
  "Ctrl-C during `%s` leaves no process behind",
  { timeout: 240_000 },
  async (step) => {
    await using folder = await temporaryFolder();
    const data = join(folder.path, "data");
    const quickstart = startCommand(["quickstart", "--exit", "--json", "--data", data, "--port", "0"], {
      cwd: folder.path,
    });
    let hasEnded = false;
    void quickstart.ended.then(() => (hasEnded = true));
    await until(step, () => hasEnded || quickstart.stderr().includes(`$ ${step}`), 200_000);
    quickstart.kill("SIGINT");
    expect(await quickstart.ended).toMatchObject({ code: 130, stdout: "" });
    expect(await processesOf(data)).toEqual([]);
  },
);

/** Command lines that name the folder or, where the system tells, of processes that work in it. */
async function processesOf(folder: string): Promise<string[]> {
  const { stdout } = await run("ps", ["-eo", "pid=,args="], { maxBuffer: 16 * 1024 * 1024 });
  const found: string[] = [];
  for (const line of stdout.split("\n")) {
    const cwd = await readlink(`/proc/${Number.parseInt(line, 10)}/cwd`).catch(() => "");
    if (line.includes(folder) || cwd.startsWith(folder)) found.push(line);
  }
  return found;
}

import { existsSync } from "node:fs";
import { chmod, cp, mkdir, symlink, writeFile } from "node:fs/promises";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import manifest from "../package.json" with { type: "json" };
import { PROGRAM, startCommand } from "./child.ts";
import { temporaryFolder } from "./folder.ts";

const run = promisify(execFile);

test("--version answers without loading anything", async () => {
  await using folder = await temporaryFolder();
  // Alone in a folder: there is nothing that it could load.
  await mkdir(join(folder.path, "bin"));
  await cp(PROGRAM, join(folder.path, "bin/osmosis.js"));
  await cp(join(PROGRAM, "../../package.json"), join(folder.path, "package.json"));
  const { stdout } = await run(process.execPath, [join(folder.path, "bin/osmosis.js"), "--version"]);
  expect(stdout).toBe(`osmosis ${manifest.version}\n`);
});

test("the whole program answers --version among other options, too", async () => {
  await using folder = await temporaryFolder();
  const ran = await startCommand(["--plain", "--version"], { cwd: folder.path }).ended;
  expect(ran).toMatchObject({ code: 0, stdout: `osmosis ${manifest.version}\n`, stderr: "" });
});

test.skipIf(!existsSync("/dev/full"))(
  "an answer that could not be written is a failure, which says why",
  async () => {
    const command = `"${process.execPath}" "${PROGRAM}" --help > /dev/full`;
    await expect(run("sh", ["-c", command])).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining("the answer could not be written: ENOSPC"),
    });
  },
);

// The machine's own Node, if it is an older one.
const oldNode = ["/usr/bin/node", "/usr/local/bin/node"].find((path) => existsSync(path));

test.skipIf(oldNode === undefined)(
  "another Node hands over to the bundled one, with exit code and signal",
  async () => {
    await using folder = await temporaryFolder();
    const options = { cwd: folder.path, ...(oldNode === undefined ? {} : { node: oldNode }) };
    expect(await startCommand(["dataset", "--nope"], options).ended).toMatchObject({ code: 2 });
    const help = await startCommand(["--help"], options).ended;
    expect(help).toMatchObject({ code: 0, stderr: "" });
  },
);

test("an old Node without a newer one beside it is told what to do", async () => {
  await using folder = await temporaryFolder();
  const program = join(folder.path, "package/bin/osmosis.js");
  await mkdir(join(folder.path, "package/bin"), { recursive: true });
  await cp(PROGRAM, program);
  // The same Node under another number: only the number decides.
  const preload = join(folder.path, "old.cjs");
  await writeFile(preload, 'Object.defineProperty(process.versions, "node", { value: "20.1.0" });\n');
  const failed: unknown = await run(process.execPath, ["--require", preload, program, "doctor"]).catch(
    (error: unknown) => error,
  );
  expect(failed).toMatchObject({ code: 1, stderr: expect.stringContaining("needs Node 22.18 or newer") });
});

test("a signal that only the old Node got reaches the command, and its death is passed on", async () => {
  await using folder = await temporaryFolder();
  const program = join(folder.path, "package/bin/osmosis.js");
  const bin = join(folder.path, "node_modules/.bin");
  await mkdir(join(folder.path, "package/bin"), { recursive: true });
  await mkdir(bin, { recursive: true });
  await cp(PROGRAM, program);
  const preload = join(folder.path, "old.cjs");
  await writeFile(preload, 'Object.defineProperty(process.versions, "node", { value: "20.1.0" });\n');
  // Stands for the bundled Node: it says that it runs, and ends as SIGTERM asks it to.
  await writeFile(
    join(bin, "node"),
    "#!/bin/sh\ntrap 'exit 42' TERM\necho running\nwhile :; do sleep 0.05; done\n",
  );
  await chmod(join(bin, "node"), 0o755);
  await symlink(program, join(bin, "osmosis"));
  const child = execFile(process.execPath, ["--require", preload, join(bin, "osmosis"), "doctor"]);
  child.stdout?.once("data", () => child.kill("SIGTERM"));
  const code = await new Promise((resolve) => child.once("exit", resolve));
  expect(code).toBe(42);
});

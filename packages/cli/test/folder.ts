import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** A folder that is deleted at the end of its scope. */
export async function temporaryFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "osmosis-cli-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true, maxRetries: 5 }) };
}

const run = promisify(execFile);

/** Git with an author and without anybody's configuration. */
export async function gitIn(cwd: string, ...args: string[]): Promise<string> {
  const identity = [
    "-c",
    "user.name=Test",
    "-c",
    "user.email=test@example.com",
    "-c",
    "init.defaultBranch=main",
  ];
  const { stdout } = await run("git", [...identity, ...args], {
    cwd,
    env: {
      PATH: process.env["PATH"],
      GIT_CONFIG_GLOBAL: "/dev/null",
      HOME: cwd,
      OSMOSIS_CREDENTIAL_STORE: "file",
      XDG_CONFIG_HOME: process.env["XDG_CONFIG_HOME"],
    },
  });
  return stdout.trim();
}

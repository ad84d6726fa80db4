import { execFile } from "node:child_process";
import { dirname } from "node:path";
import type { Context } from "../context.ts";
import type { Check } from "./checks.ts";

const OLDEST_NODE = [22, 18] as const;
const TIMEOUT_MS = 10_000;

/**
 * The Node that `node` and `npm test` run here. This program brings a Node of its own when that one is too old, so what
 * it runs on itself says nothing about the tests and rollouts of the workspace.
 */
export async function checkNode({ io, env }: Context): Promise<Check> {
  const version = await versionOnPath(env);
  const name = "node";
  if (version !== undefined && isNewEnough(version))
    return { name, status: "ok", message: `Node ${version}` };
  return {
    name,
    status: "warning",
    message:
      version === undefined
        ? "there is no node on the PATH"
        : `the node on the PATH is ${version}, which cannot run TypeScript: tests and rollouts here will fail`,
    hint: `Install Node ${OLDEST_NODE.join(".")} or newer, or use the one that osmosis runs on: export PATH="${dirname(io.nodePath)}:$PATH"`,
  };
}

function isNewEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
}

async function versionOnPath(env: Context["env"]): Promise<string | undefined> {
  return await new Promise((resolve) => {
    execFile("node", ["--version"], { env: { ...env }, timeout: TIMEOUT_MS }, (error, stdout) => {
      const version = /^v(\d+\.\d+\.\d+)/.exec(stdout)?.[1];
      resolve(error === null ? version : undefined);
    });
  });
}

import { spawn } from "node:child_process";
import { join } from "node:path";
import type { Ran } from "./io.ts";

export const PROGRAM = join(import.meta.dirname, "../bin/osmosis.js");

export type RunningCommand = {
  readonly pid: number;
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly kill: (signal: NodeJS.Signals) => void;
  readonly ended: Promise<Ran & { readonly signal: NodeJS.Signals | null }>;
};

/**
 * Starts the real command in a process of its own. It gets this process's environment, since the platform's `npm` needs
 * its caches and settings, without anything that is meant for the command itself; logins are in the test's folder.
 */
export function startCommand(
  argv: readonly string[],
  options: { cwd: string; env?: Readonly<Record<string, string>>; node?: string },
): RunningCommand {
  const child = spawn(options.node ?? process.execPath, [PROGRAM, ...argv], {
    cwd: options.cwd,
    env: {
      ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("OSMOSIS_"))),
      XDG_CONFIG_HOME: join(options.cwd, "config"),
      OSMOSIS_CREDENTIAL_STORE: "file",
      ...options.env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  return {
    pid: child.pid ?? -1,
    stdout: () => stdout,
    stderr: () => stderr,
    kill: (signal) => child.kill(signal),
    ended: new Promise((resolve) => {
      child.once("close", (code, signal) => resolve({ code: code ?? -1, signal, stdout, stderr }));
    }),
  };
}

import { spawn } from "node:child_process";
import { join } from "node:path";

export const CHECKOUT = join(import.meta.dirname, "../../..");

const OSMOSIS = join(CHECKOUT, "packages/cli/bin/osmosis.js");

export type Ended = {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
};

export type RunningCommand = {
  readonly pid: number;
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly kill: (signal: NodeJS.Signals) => void;
  readonly ended: Promise<Ended>;
};

/**
 * The environment of a person on this machine with a home of their own: npm's settings and caches and the network are
 * the machine's, logins and the configuration of Git are theirs.
 */
export function personalEnvironment(
  home: string,
  extra: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const inherited = Object.entries(process.env).filter(
    ([name, value]) =>
      value !== undefined && !/^(OSMOSIS_|VITEST|NODE_OPTIONS|NODE_V8|FORCE_COLOR)/.test(name),
  );
  return {
    // `filter` has taken out what is undefined.
    ...(Object.fromEntries(inherited) as Record<string, string>),
    XDG_CONFIG_HOME: join(home, "config"),
    OSMOSIS_CREDENTIAL_STORE: "file",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_AUTHOR_NAME: "Test",
    GIT_AUTHOR_EMAIL: "test@example.com",
    GIT_COMMITTER_NAME: "Test",
    GIT_COMMITTER_EMAIL: "test@example.com",
    GIT_TERMINAL_PROMPT: "0",
    ...extra,
  };
}

/** Starts the real `osmosis`. */
export function startOsmosis(
  args: readonly string[],
  options: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
): RunningCommand {
  return startProgram(process.execPath, [OSMOSIS, ...args], options);
}

export function startProgram(
  program: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
): RunningCommand {
  const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  return {
    pid: child.pid ?? -1,
    stdout: () => stdout,
    stderr: () => stderr,
    kill: (signal) => child.kill(signal),
    ended: new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (code, signal) => {
        // The pipes are emptied a moment later; a process that was left behind with them must not hold the test.
        const done = (): void => resolve({ code, signal, stdout, stderr });
        child.once("close", done);
        setTimeout(done, 2000).unref();
      });
    }),
  };
}

/** Runs a program to its end. @throws Error with everything it said unless it exits with 0. */
export async function runProgram(
  program: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly env: Readonly<Record<string, string>> },
): Promise<string> {
  const ended = await startProgram(program, args, options).ended;
  if (ended.code !== 0) {
    throw new Error(
      `${program} ${args.join(" ")} ended with ${ended.code}:\n${ended.stdout}\n${ended.stderr}`,
    );
  }
  return ended.stdout;
}

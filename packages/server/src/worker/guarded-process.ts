import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { readBoundedLines } from "./bounded-lines.ts";

/** What a child ended with. */
export type ProcessEnd = { readonly code: number };

export type GuardedProcess = AsyncDisposable & {
  /** Resolves when the command has ended, whoever ended it. */
  readonly ended: Promise<ProcessEnd>;
  /** Asks the whole process group to end, kills it after the grace, and waits. */
  stop(): Promise<ProcessEnd>;
};

const GUARD = join(import.meta.dirname, "process-guard.js");

/**
 * Starts a command so that it can never outlive this process: a small guard holds it, and ends its whole process group
 * when its pipe to us closes. On Linux it ends those that left the group, too, as long as they keep their environment.
 *
 * @param options.environment - all that the command sees of the outside; nothing is inherited
 * @param options.onLine - gets each line that the command prints
 */
export function startGuarded(
  command: readonly [string, ...string[]],
  options: {
    readonly folder: string;
    readonly environment: Readonly<Record<string, string>>;
    readonly onLine: (line: string, stream: "stdout" | "stderr") => void;
    readonly graceMs?: number;
    readonly signal?: AbortSignal;
  },
): GuardedProcess {
  const guard = spawn(process.execPath, [GUARD, ...command], {
    cwd: options.folder,
    env: {
      ...options.environment,
      _OSMOSIS_GUARD_GRACE_MS: String(options.graceMs ?? 3000),
      // Every process that comes of the command inherits it, so that the guard knows them in whatever group they are.
      _OSMOSIS_GUARD_ID: randomUUID(),
    },
    stdio: ["pipe", "pipe", "pipe"],
    // In a group of its own: whoever kills ours must not take the guard before it has done its duty.
    detached: true,
  });
  for (const stream of ["stdout", "stderr"] as const) {
    readBoundedLines(guard[stream], (line) => options.onLine(line, stream));
  }
  // The guard may be gone before we close its stdin.
  guard.stdin.on("error", () => {});
  const ended = new Promise<ProcessEnd>((resolve, reject) => {
    guard.once("error", reject);
    guard.once("close", (code) => resolve({ code: code ?? 137 }));
  });
  // Whoever cares awaits `ended`; a failed start must not bring the worker down besides.
  ended.catch(() => {});
  const stop = (): Promise<ProcessEnd> => {
    guard.stdin.end();
    return ended;
  };
  options.signal?.addEventListener("abort", () => void stop(), { once: true });
  if (options.signal?.aborted) void stop();
  return {
    ended,
    stop,
    async [Symbol.asyncDispose]() {
      await stop();
    },
  };
}

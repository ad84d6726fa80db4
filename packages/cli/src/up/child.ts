import { spawn, type ChildProcess } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { killProcessGroup } from "../io.ts";

/**
 * A child process that is held.
 *
 * It starts in a process group of its own, so that a Ctrl-C at the terminal reaches only us and the child is told once.
 * Its stdin is a pipe that closes when this process is gone, by whatever death: the children of `up` end by that.
 */
export type Child = {
  readonly pid: number | undefined;
  /** Resolves at its end. */
  readonly ended: Promise<Ending>;
  /** SIGTERM, and SIGKILL to its whole group when it has not ended in time. */
  readonly stop: (graceMs: number) => Promise<void>;
};

export type Ending = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export function startChild(options: {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly onStdout: (text: string) => void;
  readonly onStderr: (text: string) => void;
}): Child {
  const child = spawn(options.command, options.args, {
    cwd: options.cwd,
    env: { ...options.env },
    detached: true,
    stdio: ["pipe", "pipe", "pipe"],
  });
  // A child that is gone breaks the pipe; its end is told by `ended`.
  child.stdin.on("error", () => {});
  child.stdout.setEncoding("utf8").on("data", options.onStdout);
  child.stderr.setEncoding("utf8").on("data", options.onStderr);
  const ended = endingOf(child);
  return {
    pid: child.pid,
    ended,
    async stop(graceMs) {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGTERM");
        const hasEnded = await Promise.race([ended.then(() => true), delay(graceMs, false, { ref: false })]);
        if (!hasEnded) killGroup(child.pid);
      }
      await ended;
      // Whatever it left behind in its group.
      killGroup(child.pid);
    },
  };
}

function endingOf(child: ChildProcess): Promise<Ending> {
  return new Promise((resolve) => {
    // Not `close`: a grandchild that holds the pipes would hold us, too.
    child.once("exit", (code, signal) => resolve({ code, signal }));
    child.once("error", () => resolve({ code: 127, signal: null }));
  });
}

function killGroup(pid: number | undefined): void {
  if (pid !== undefined) killProcessGroup(pid);
}

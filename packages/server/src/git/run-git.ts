import { spawn } from "node:child_process";
import { devNull } from "node:os";
import { PassThrough, type Readable, type Writable } from "node:stream";

/** Git said no. `stderr` is its own text. */
export class GitError extends Error {
  override readonly name = "GitError";
  readonly stderr: string;

  constructor(args: readonly string[], exitCode: number | null, stderr: string) {
    super(`git ${args[0] ?? ""} ended with ${exitCode ?? "a signal"}: ${stderr.trim()}`);
    this.stderr = stderr;
  }
}

export interface GitOptions {
  /** The repository. */
  folder: string;
  environment?: Readonly<Record<string, string>>;
  signal?: AbortSignal;
}

/** A running command. */
export interface GitProcess {
  readonly stdin: Writable;
  /** Kept until it is read: Node drops what a child wrote when it ends before somebody listens. */
  readonly stdout: Readable;
  /** Everything of standard error, when the command has ended. */
  readonly stderr: Promise<string>;
  /** The exit code, `null` after a signal, when it has ended and its output is read; rejects if it never started. */
  readonly exitCode: Promise<number | null>;
  /** Ends it; fine when it has ended. */
  kill(): void;
}

/** The system's Git, shielded from the configuration and the environment of whoever started the server. */
export interface Git {
  /** Runs a command to its end; its standard output. @throws {GitError} when it fails. */
  run(args: readonly string[], options: GitOptions & { input?: string }): Promise<string>;
  /** Starts a command; the caller reads, writes and waits. */
  start(args: readonly string[], options: GitOptions): GitProcess;
}

/** @param toolEnvironment Where `git` is found. */
export function createGit(toolEnvironment: Readonly<Record<string, string>>): Git {
  const start: Git["start"] = (args, { folder, environment, signal }) => {
    // Repositories may belong to another user, as on a mounted volume; they are the server's own all the same.
    const child = spawn("git", ["-c", "safe.directory=*", ...args], {
      cwd: folder,
      stdio: ["pipe", "pipe", "pipe"],
      env: {
        ...toolEnvironment,
        LC_ALL: "C",
        GIT_CONFIG_NOSYSTEM: "1",
        GIT_CONFIG_GLOBAL: devNull,
        GIT_TERMINAL_PROMPT: "0",
        ...environment,
      },
      ...(signal === undefined ? {} : { signal }),
    });
    const exitCode = new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", resolve);
    });
    // Whoever asks gets the rejection; nobody has to.
    exitCode.catch(() => {});
    // A command that ends before it has read its input breaks the pipe; its exit code tells what happened.
    child.stdin.on("error", () => {});
    return {
      stdin: child.stdin,
      stdout: child.stdout.pipe(new PassThrough()),
      stderr: textOf(child.stderr),
      exitCode,
      kill: () => void child.kill(),
    };
  };

  return {
    start,
    async run(args, { input = "", ...options }) {
      const child = start(args, options);
      child.stdin.end(input);
      const [stdout, stderr, exitCode] = await Promise.all([
        textOf(child.stdout),
        child.stderr,
        child.exitCode,
      ]);
      if (exitCode !== 0) throw new GitError(args, exitCode, stderr);
      return stdout;
    },
  };
}

async function textOf(stream: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString("utf8");
}

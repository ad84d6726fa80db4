import { execFile } from "node:child_process";
import { OsmosisError } from "@osmosis/protocol";

export type GitOptions = {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal?: AbortSignal;
};

export type GitAnswer = { readonly ok: boolean; readonly stdout: string; readonly stderr: string };

/**
 * Runs git and answers what it said; a failing git is an answer, too. It never asks for a password.
 *
 * @throws OsmosisError `WORKSPACE_REQUIRED` when there is no git on this machine.
 */
export async function git(args: readonly string[], { cwd, env, signal }: GitOptions): Promise<GitAnswer> {
  return await new Promise((resolve, reject) => {
    execFile(
      "git",
      args,
      {
        cwd,
        env: { ...env, GIT_TERMINAL_PROMPT: "0", LC_ALL: "C" },
        maxBuffer: 64 * 1024 * 1024,
        ...(signal === undefined ? {} : { signal }),
      },
      (error, stdout, stderr) => {
        if (signal?.aborted) reject(signal.reason as Error);
        else if (error !== null && error.code === "ENOENT") {
          reject(
            new OsmosisError("WORKSPACE_REQUIRED", "There is no git on the PATH.", {
              hint: "Install Git 2.30 or newer: https://git-scm.com/downloads.",
              cause: error,
            }),
          );
        } else resolve({ ok: error === null, stdout: stdout.trimEnd(), stderr: stderr.trim() });
      },
    );
  });
}

/**
 * The output of a git command that has to work.
 *
 * @throws OsmosisError with git's own words.
 */
export async function gitOutput(args: readonly string[], options: GitOptions): Promise<string> {
  const answer = await git(args, options);
  if (answer.ok) return answer.stdout;
  const reason = answer.stderr.split("\n").at(-1) ?? "";
  throw new OsmosisError("VALIDATION", `git ${args[0] ?? ""} failed: ${reason}`, {
    hint: "Run it by itself to see all that Git says.",
    details: { stderr: answer.stderr },
  });
}

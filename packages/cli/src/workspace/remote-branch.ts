import { git, type GitAnswer, type GitOptions } from "./git.ts";

/** Who is slower than this is judged by what was fetched last. */
const ANSWER_TIMEOUT_MS = 15_000;
const FETCH_TIMEOUT_MS = 60_000;

/** How HEAD stands to another commit. */
export type Standing = {
  /** Commits that only this clone has. */
  readonly ahead: number;
  /** Commits that this clone's HEAD lacks. */
  readonly behind: number;
};

/**
 * The commit that a branch has at the remote now, whatever was fetched last.
 *
 * @returns `null` when there is no such branch, `undefined` when the remote did not answer
 */
export async function remoteCommit(
  options: GitOptions,
  { remote, branch }: { remote: string; branch: string },
): Promise<string | null | undefined> {
  const ref = `refs/heads/${branch}`;
  const answer = await within(options, ANSWER_TIMEOUT_MS, ["ls-remote", "--quiet", remote, ref]);
  if (answer?.ok !== true) return undefined;
  // The name is a pattern to Git, which also finds longer ones that end like it.
  const line = answer.stdout.split("\n").find((one) => one.split("\t")[1] === ref);
  return line?.split("\t")[0] ?? null;
}

/**
 * Sees to it that this clone has a commit of a branch of the remote, and says whether it has. Only objects come: no
 * branch, no remote-tracking branch and no file changes, so that looking changes nothing for the person.
 */
export async function bringCommit(
  options: GitOptions,
  { remote, branch, commit }: { remote: string; branch: string; commit: string },
): Promise<boolean> {
  if (await hasCommit(options, commit)) return true;
  await within(options, FETCH_TIMEOUT_MS, [
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-gc",
    "--no-recurse-submodules",
    "--refmap=",
    remote,
    `refs/heads/${branch}`,
  ]);
  return await hasCommit(options, commit);
}

export async function hasCommit(options: GitOptions, commit: string): Promise<boolean> {
  return (await git(["cat-file", "-e", `${commit}^{commit}`], options)).ok;
}

/** Undefined for a clone without a commit of its own. */
export async function standingTo(options: GitOptions, commit: string): Promise<Standing | undefined> {
  const counts = await git(["rev-list", "--left-right", "--count", `HEAD...${commit}`], options);
  if (!counts.ok) return undefined;
  const [ahead = 0, behind = 0] = counts.stdout.split("\t").map(Number);
  return { ahead, behind };
}

export function manyCommits(count: number, kind = ""): string {
  return `${count} ${kind === "" ? "" : `${kind} `}${count === 1 ? "commit" : "commits"}`;
}

/** What Git answered; undefined when it took too long. */
async function within(
  options: GitOptions,
  milliseconds: number,
  args: readonly string[],
): Promise<GitAnswer | undefined> {
  const deadline = AbortSignal.timeout(milliseconds);
  const signal = options.signal === undefined ? deadline : AbortSignal.any([options.signal, deadline]);
  try {
    return await git(args, { ...options, signal });
  } catch (error) {
    options.signal?.throwIfAborted();
    if (deadline.aborted) return undefined;
    throw error;
  }
}

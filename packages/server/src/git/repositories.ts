import { randomUUID } from "node:crypto";
import { mkdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { OsmosisError } from "@osmosis/protocol";
import { GitError, type Git, type GitProcess } from "./run-git.ts";

/** What a run may name: a pushed branch, or a commit by 7 to 40 hex digits, or neither for the default branch. */
export interface RefQuery {
  branch?: string | undefined;
  commit_sha?: string | undefined;
}

export interface CommitInfo {
  sha: string;
  author: string;
  /** The first line of the message. */
  subject: string;
}

export type Repositories = ReturnType<typeof createRepositories>;

export const DEFAULT_BRANCH = "main";

/** The bare repositories of all workspaces, each a folder named by the workspace's id. */
export function createRepositories(parts: { folder: string; git: Git; now: () => Date }) {
  const { folder, git } = parts;
  const pathOf = (workspaceId: string) => join(folder, `${workspaceId}.git`);
  const run = async (workspaceId: string, args: readonly string[]) => {
    try {
      return await git.run(args, { folder: pathOf(workspaceId) });
    } catch (error) {
      if (!(error instanceof GitError)) await check(workspaceId);
      throw error;
    }
  };

  /** @throws {OsmosisError} STORAGE when the repository's folder is gone. */
  const check = async (workspaceId: string): Promise<void> => {
    const path = pathOf(workspaceId);
    const found = await stat(path).catch(() => undefined);
    if (found?.isDirectory() === true) return;
    throw new OsmosisError(
      "STORAGE",
      `The repository of this workspace is missing: there is no folder ${path}.`,
      {
        hint: "Restore it from a backup; or make an empty one there with `git init --bare`, and push a clone to it.",
      },
    );
  };

  /** The output of a look-up, or `undefined` when Git knows no such thing. */
  const find = async (workspaceId: string, args: readonly string[]) => {
    // No program can be started with such arguments, and no path or branch is like that.
    if (args.some((text) => text.includes("\0") || text.length > 4096)) return undefined;
    try {
      return (await run(workspaceId, args)).trim();
    } catch (error) {
      if (error instanceof GitError) return undefined;
      throw error;
    }
  };

  return {
    pathOf,
    check,

    /** Makes the repository with one commit that holds the files of `seedFolder`. It appears whole or not at all. */
    async create(workspaceId: string, seedFolder: string): Promise<void> {
      const aside = join(folder, `incoming-${randomUUID()}`);
      await mkdir(aside, { recursive: true });
      try {
        await git.run(["init", "--bare", "--quiet", `--initial-branch=${DEFAULT_BRANCH}`, "."], {
          folder: aside,
        });
        for (const [key, value] of Object.entries(SETTINGS)) {
          await git.run(["config", key, value], { folder: aside });
        }
        await commitFolder(aside, seedFolder);
        await rename(aside, pathOf(workspaceId));
      } catch (error) {
        await rm(aside, { recursive: true, force: true });
        throw error;
      }
    },

    async remove(workspaceId: string): Promise<void> {
      await rm(pathOf(workspaceId), { recursive: true, force: true });
    },

    /** The commit of every branch. */
    async branches(workspaceId: string): Promise<Map<string, string>> {
      const text = await run(workspaceId, [
        "for-each-ref",
        "--format=%(objectname) %(refname:lstrip=2)",
        "refs/heads",
      ]);
      const lines = text.split("\n").filter((line) => line !== "");
      return new Map(lines.map((line) => [line.slice(41), line.slice(0, 40)]));
    },

    /**
     * The full id of the commit that a run names.
     *
     * @throws {OsmosisError} VALIDATION when both or a malformed one are given; NOT_FOUND when it was never pushed.
     */
    async resolveRef(workspaceId: string, query: RefQuery): Promise<string> {
      if (query.branch !== undefined && query.commit_sha !== undefined) {
        throw new OsmosisError("VALIDATION", "A run takes a branch or a commit, not both.", {
          hint: "Remove `branch` or `commit_sha` from [experiment].",
          details: { field: "commit_sha" },
        });
      }
      return query.commit_sha === undefined
        ? await resolveBranch(workspaceId, query.branch)
        : await resolveCommit(workspaceId, query.commit_sha);
    },

    async commitInfo(workspaceId: string, sha: string): Promise<CommitInfo> {
      const text = await run(workspaceId, [
        "log",
        "-1",
        "--format=%H%x00%an%x00%s",
        "--end-of-options",
        sha,
        "--",
      ]);
      const [full = sha, author = "", subject = ""] = text.trimEnd().split("\0");
      return { sha: full, author, subject };
    },

    /** The names of the folders directly below a folder of a commit. */
    async listFolders(workspaceId: string, sha: string, path: string): Promise<string[]> {
      const text = await run(workspaceId, ["ls-tree", "-z", "-d", "--name-only", sha, "--", `${path}/`]);
      return text
        .split("\0")
        .filter((name) => name !== "")
        .map((name) => name.slice(path.length + 1));
    },

    /** The text of a file of a commit, `undefined` when there is no such file. */
    async readFile(workspaceId: string, sha: string, path: string): Promise<string | undefined> {
      return await find(workspaceId, ["cat-file", "blob", `${sha}:${path}`]);
    },

    /**
     * The files of a commit, or of one folder of it, as a tar archive.
     *
     * @throws {OsmosisError} NOT_FOUND when the commit or the folder does not exist.
     */
    async archive(workspaceId: string, sha: string, path?: string): Promise<Readable> {
      const object = path === undefined ? `${sha}^{commit}` : `${sha}:${path}`;
      if ((await find(workspaceId, ["cat-file", "-e", object])) === undefined) {
        throw new OsmosisError(
          "NOT_FOUND",
          `The commit ${sha} ${path === undefined ? "" : `has no folder ${path} or `}does not exist.`,
        );
      }
      const args = ["archive", "--format=tar", sha, ...(path === undefined ? [] : ["--", path])];
      const child = git.start(args, { folder: pathOf(workspaceId) });
      child.stdin.end();
      return Readable.from(outputOf(child, args));
    },
  };

  async function resolveBranch(workspaceId: string, branch: string | undefined): Promise<string> {
    const name = branch ?? DEFAULT_BRANCH;
    // Not `rev-parse`, which would read `main~1` as an expression.
    const sha = await find(workspaceId, ["show-ref", "--verify", "--hash", `refs/heads/${name}`]);
    if (sha !== undefined) return sha;
    throw new OsmosisError(
      "NOT_FOUND",
      `The branch ${name} was never pushed to this workspace's repository.`,
      {
        hint: `Push it with \`git push origin ${name}\`.`,
        details: { field: "branch" },
      },
    );
  }

  async function resolveCommit(workspaceId: string, text: string): Promise<string> {
    if (!/^[0-9a-f]{7,40}$/i.test(text)) {
      throw new OsmosisError(
        "VALIDATION",
        `${JSON.stringify(text)} is not a commit id of 7 to 40 hex digits.`,
        {
          details: { field: "commit_sha" },
        },
      );
    }
    const sha = await find(workspaceId, [
      "rev-parse",
      "--verify",
      "--quiet",
      "--end-of-options",
      `${text}^{commit}`,
    ]);
    if (sha !== undefined) return sha;
    throw new OsmosisError(
      "NOT_FOUND",
      `The commit ${text} was never pushed to this workspace's repository.`,
      {
        hint: "Push the branch that holds it, or name another commit.",
        details: { field: "commit_sha" },
      },
    );
  }

  async function commitFolder(repository: string, files: string): Promise<void> {
    const time = `${Math.floor(parts.now().getTime() / 1000)} +0000`;
    const environment = {
      GIT_DIR: repository,
      GIT_WORK_TREE: files,
      GIT_INDEX_FILE: join(repository, "seed-index"),
      GIT_AUTHOR_NAME: "Osmosis",
      GIT_AUTHOR_EMAIL: "osmosis@localhost",
      GIT_AUTHOR_DATE: time,
      GIT_COMMITTER_NAME: "Osmosis",
      GIT_COMMITTER_EMAIL: "osmosis@localhost",
      GIT_COMMITTER_DATE: time,
    };
    const options = { folder: files, environment };
    // By force: the packages that the seed vendors may be of a kind that its own .gitignore leaves out.
    await git.run(["add", "--all", "--force", "."], options);
    const tree = (await git.run(["write-tree"], options)).trim();
    const commit = (
      await git.run(["commit-tree", "-m", "Start from the workspace template", tree], options)
    ).trim();
    await git.run(["update-ref", `refs/heads/${DEFAULT_BRANCH}`, commit], options);
    await rm(environment.GIT_INDEX_FILE, { force: true });
  }
}

/** A push may hold at most this much, and only well-formed objects. */
const SETTINGS: Readonly<Record<string, string>> = {
  "receive.maxInputSize": String(2 * 1024 ** 3),
  "receive.fsckObjects": "true",
  "receive.denyDeleteCurrent": "refuse",
  "http.receivepack": "true",
  // Now and then a push waits until Git has tidied up, rather than leave a process behind that does.
  "gc.autoDetach": "false",
};

async function* outputOf(child: GitProcess, args: readonly string[]): AsyncGenerator<Buffer> {
  try {
    yield* child.stdout;
    const exitCode = await child.exitCode;
    if (exitCode !== 0) throw new GitError(args, exitCode, await child.stderr);
  } finally {
    child.kill();
  }
}

import { lstat, realpath, stat } from "node:fs/promises";
import { join, relative } from "node:path";
import { OsmosisError, type ExperimentConfig } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { git, type GitAnswer, type GitOptions } from "../workspace/git.ts";
import {
  bringCommit,
  manyCommits,
  remoteCommit,
  standingTo,
  type Standing,
} from "../workspace/remote-branch.ts";

/** So many uncommitted files are named. */
const SHOWN_CHANGES = 3;

/** Something about the code that does not stop a submission. */
export type CodeWarning = {
  /** What stands here only, or what stands on the platform only. */
  readonly code: "UNPUSHED_CHANGES" | "CLONE_BEHIND";
  readonly message: string;
};

/** The commit whose code a run will use, and what the person should know about it. */
export type PushedCode = {
  /** The full id; undefined for a pinned commit that this clone cannot expand. */
  readonly commit: string | undefined;
  /** `main (1a2b3c4d)`. */
  readonly description: string;
  readonly warnings: readonly CodeWarning[];
};

/**
 * Checks that the entrypoint is there, here and in the commit that was pushed: the platform runs the pushed commit,
 * never the work tree. What was pushed is asked of origin, since others push, too; where origin does not answer, it is
 * what this clone fetched last, or `platformCommit` when the platform has named it.
 *
 * @throws OsmosisError `NOT_FOUND` for a rollout or entrypoint that does not exist here, `VALIDATION` for one that
 * leads out of its folder, `CONFLICT` for one that was never pushed
 */
export async function checkPushedCode(
  context: Context,
  parts: { root: string; experiment: ExperimentConfig; configPath: string; platformCommit?: string },
): Promise<PushedCode> {
  const { root, experiment, configPath, platformCommit } = parts;
  const entrypoint = `rollouts/${experiment.rollout}/${experiment.entrypoint}`;
  const options: GitOptions = { cwd: root, env: context.io.env, signal: context.io.interrupted };
  const ask: Ask = (...args) => git(args, options);

  if (experiment.commit_sha === undefined) await checkLocalFile(root, experiment, configPath);
  const target = await targetOf(ask, options, experiment, platformCommit);
  if (target.commit === undefined) {
    if (experiment.commit_sha !== undefined) {
      return {
        commit: platformCommit,
        description: experiment.commit_sha,
        warnings: [
          {
            code: "UNPUSHED_CHANGES",
            message: `The commit ${experiment.commit_sha} is not in this clone, so its code was not checked.`,
          },
        ],
      };
    }
    throw new OsmosisError(
      "CONFLICT",
      `The branch ${target.branch} was never pushed, so the platform has no code to run.`,
      {
        hint: `Push it: \`git push -u origin ${target.branch}\`.`,
        details: { branch: target.branch },
      },
    );
  }
  const { commit } = target;
  const description = `${target.name} (${commit.slice(0, 8)})`;
  if (!(await bringCommit(options, { remote: "origin", branch: target.branch, commit }))) {
    const message =
      `${target.branch} on the platform is at ${commit.slice(0, 8)}, a commit that this clone does not have. ` +
      `The run uses what is there; it was not compared with rollouts/${experiment.rollout} here. ` +
      `\`${await pullCommand(ask, target)}\` brings it.`;
    return { commit, description, warnings: [{ code: "CLONE_BEHIND", message }] };
  }
  const standing = await standingTo(options, commit);
  const isPushed = (await ask("cat-file", "-e", `${commit}:${entrypoint}`)).ok;
  if (!isPushed) {
    const isCommitted = (await ask("cat-file", "-e", `HEAD:${entrypoint}`)).ok;
    const isBehind = !target.isPinned && standing !== undefined && standing.behind > 0;
    throw new OsmosisError(
      "CONFLICT",
      `${entrypoint} is not in the commit that the run would use: ${target.name} (${commit.slice(0, 8)}).`,
      {
        hint: isCommitted
          ? isBehind
            ? `Others have pushed in the meantime. Take that first, then push your commits: \`${await pullCommand(ask, target, "--rebase")} && git push\`.`
            : "Push your commits: `git push`."
          : `Commit and push it with the lock that names its dependencies: \`npm install && git add rollouts/${experiment.rollout} package-lock.json && git commit -m "Add ${experiment.rollout}" && git push\`.`,
        details: { entrypoint, commit },
      },
    );
  }
  return {
    commit,
    description,
    warnings: await differences(ask, { ...target, commit, standing, rollout: experiment.rollout }),
  };
}

async function checkLocalFile(root: string, experiment: ExperimentConfig, configPath: string): Promise<void> {
  const folder = join(root, "rollouts", experiment.rollout);
  if ((await stat(folder).catch(() => undefined))?.isDirectory() !== true) {
    throw new OsmosisError(
      "NOT_FOUND",
      `${configPath}: experiment.rollout: there is no folder rollouts/${experiment.rollout}.`,
      {
        hint: `\`osmosis rollout init ${experiment.rollout}\` makes one; \`ls rollouts\` shows those that exist.`,
      },
    );
  }
  const file = join(folder, experiment.entrypoint);
  const isThere = (await lstat(file).catch(() => undefined)) !== undefined;
  const real = await realpath(file).catch(() => undefined);
  if (!isThere || real === undefined || !(await stat(real)).isFile()) {
    throw new OsmosisError(
      "NOT_FOUND",
      `${configPath}: experiment.entrypoint: there is no file rollouts/${experiment.rollout}/${experiment.entrypoint}.`,
      { hint: "Correct experiment.entrypoint; it counts from the rollout's folder." },
    );
  }
  if (relative(await realpath(folder), real).startsWith("..")) {
    throw new OsmosisError(
      "VALIDATION",
      `${configPath}: experiment.entrypoint leads outside of rollouts/${experiment.rollout}.`,
      {
        hint: "The entrypoint has to lie inside the rollout's folder.",
      },
    );
  }
}

type Ask = (...args: string[]) => Promise<GitAnswer>;

type Target = {
  readonly branch: string;
  readonly name: string;
  readonly isPinned: boolean;
  readonly commit: string | undefined;
};

/** The commit that the platform will resolve: the pinned one, or what was last pushed to the branch. */
async function targetOf(
  ask: Ask,
  options: GitOptions,
  experiment: ExperimentConfig,
  platformCommit: string | undefined,
): Promise<Target> {
  const commitOf = async (ref: string): Promise<string | undefined> => {
    const answer = await ask("rev-parse", "--verify", "--quiet", `${ref}^{commit}`);
    return answer.ok ? answer.stdout : undefined;
  };
  if (experiment.commit_sha !== undefined) {
    const { commit_sha: sha } = experiment;
    return { branch: sha, name: sha.slice(0, 8), isPinned: true, commit: await commitOf(sha) };
  }
  const branch = experiment.branch ?? (await defaultBranch(ask));
  const pushed = platformCommit ?? (await remoteCommit(options, { remote: "origin", branch }));
  const commit = pushed === undefined ? await commitOf(`refs/remotes/origin/${branch}`) : pushed;
  return { branch, name: branch, isPinned: false, commit: commit ?? undefined };
}

async function defaultBranch(ask: Ask): Promise<string> {
  const head = await ask("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD");
  if (head.ok) return head.stdout.replace(/^origin\//, "");
  for (const name of ["main", "master"]) {
    if ((await ask("rev-parse", "--verify", "--quiet", `refs/remotes/origin/${name}`)).ok) return name;
  }
  return "main";
}

/** What stands here but not in the pushed commit, and there but not here. */
async function differences(
  ask: Ask,
  target: Target & {
    readonly commit: string;
    readonly standing: Standing | undefined;
    readonly rollout: string;
  },
): Promise<CodeWarning[]> {
  const { commit, standing } = target;
  const folder = `rollouts/${target.rollout}`;
  const warnings: CodeWarning[] = [];
  const [status, changed, changedThere] = await Promise.all([
    // Configurations are read here, not from the commit.
    ask("status", "--porcelain", "--", ".", ":(exclude)configs"),
    ask("diff", "--quiet", commit, "--", folder),
    ask("diff", "--quiet", `HEAD...${commit}`, "--", folder),
  ]);
  const dirty = status.stdout === "" ? [] : status.stdout.split("\n").map((line) => line.slice(3));
  if (dirty.length > 0) {
    const shown = dirty.slice(0, SHOWN_CHANGES).join(", ");
    const rest = dirty.length > SHOWN_CHANGES ? ", …" : "";
    warnings.push({
      code: "UNPUSHED_CHANGES",
      message: `${dirty.length} uncommitted ${dirty.length === 1 ? "change is" : "changes are"} not part of the run: ${shown}${rest}`,
    });
  }
  const { ahead, behind } = standing ?? { ahead: 0, behind: 0 };
  const isBehind = !target.isPinned && behind > 0;
  if (isBehind) {
    const pull = await pullCommand(ask, target, ...(ahead > 0 ? ["--rebase"] : []));
    warnings.push({
      code: "CLONE_BEHIND",
      message: [
        `${target.name} on the platform is ${manyCommits(behind)} ahead of this clone, and ${folder} `,
        changedThere.ok ? "is the same there" : "differs there: the run uses what is there",
        ahead === 0
          ? `. \`${pull}\` brings it.`
          : `. ${manyCommits(ahead, "local")} ${ahead === 1 ? "is" : "are"} not there; a push is refused until ` +
            `you have the others': \`${pull}\`, then \`git push\`.`,
      ].join(""),
    });
  } else if (ahead > 0) {
    const are = `${manyCommits(ahead, "local")} ${ahead === 1 ? "is" : "are"}`;
    warnings.push({
      code: "UNPUSHED_CHANGES",
      message: target.isPinned
        ? `${are} not in ${target.name}, the commit that \`commit_sha\` names.`
        : `${are} not in ${target.name} as pushed; \`git push\` adds them.`,
    });
  }
  if (!changed.ok && (!isBehind || changedThere.ok)) {
    warnings.push({
      code: "UNPUSHED_CHANGES",
      message: `${folder} differs here from what the run will use.`,
    });
  }
  return warnings;
}

/** `git pull`, with the branch where HEAD is another one. */
async function pullCommand(ask: Ask, { branch }: Target, ...flags: string[]): Promise<string> {
  const head = await ask("symbolic-ref", "--quiet", "--short", "HEAD");
  return ["git pull", ...flags, ...(head.stdout === branch ? [] : ["origin", branch])].join(" ");
}

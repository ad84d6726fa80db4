import { lstat, realpath, stat } from "node:fs/promises";
import { join, relative } from "node:path";
import { OsmosisError, type ExperimentConfig } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { git, type GitAnswer } from "../workspace/git.ts";

/** So many uncommitted files are named. */
const SHOWN_CHANGES = 3;

/** The commit whose code a run will use, as far as this clone knows, and what the person should know about it. */
export type PushedCode = {
  /** `main (1a2b3c4d)`. */
  readonly description: string;
  readonly warnings: readonly string[];
};

/**
 * Checks that the entrypoint is there, here and in the commit that was pushed: the platform runs the pushed commit,
 * never the work tree.
 *
 * @throws OsmosisError `NOT_FOUND` for a rollout or entrypoint that does not exist here, `VALIDATION` for one that
 * leads out of its folder, `CONFLICT` for one that was never pushed
 */
export async function checkPushedCode(
  context: Context,
  parts: { root: string; experiment: ExperimentConfig; configPath: string },
): Promise<PushedCode> {
  const { root, experiment, configPath } = parts;
  const entrypoint = `rollouts/${experiment.rollout}/${experiment.entrypoint}`;
  const ask = (...args: string[]): Promise<GitAnswer> =>
    git(args, { cwd: root, env: context.io.env, signal: context.io.interrupted });

  if (experiment.commit_sha === undefined) await checkLocalFile(root, experiment, configPath);
  const target = await targetOf(ask, experiment);
  if (target.commit === undefined) {
    if (experiment.commit_sha !== undefined) {
      return {
        description: experiment.commit_sha,
        warnings: [`The commit ${experiment.commit_sha} is not in this clone, so its code was not checked.`],
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
  const isPushed = (await ask("cat-file", "-e", `${commit}:${entrypoint}`)).ok;
  if (!isPushed) {
    const isCommitted = (await ask("cat-file", "-e", `HEAD:${entrypoint}`)).ok;
    throw new OsmosisError(
      "CONFLICT",
      `${entrypoint} is not in the commit that the run would use: ${target.name} (${commit.slice(0, 8)}).`,
      {
        hint: isCommitted
          ? "Push your commits: `git push`."
          : `Commit and push it with the lock that names its dependencies: \`npm install && git add rollouts/${experiment.rollout} package-lock.json && git commit -m "Add ${experiment.rollout}" && git push\`.`,
        details: { entrypoint, commit },
      },
    );
  }
  return {
    description: `${target.name} (${commit.slice(0, 8)})`,
    warnings: await differences(ask, { commit, name: target.name, rollout: experiment.rollout }),
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

type Target = { readonly branch: string; readonly name: string; readonly commit: string | undefined };

/** The commit that the platform will resolve: the pinned one, or what was last pushed to the branch. */
async function targetOf(
  ask: (...args: string[]) => Promise<GitAnswer>,
  experiment: ExperimentConfig,
): Promise<Target> {
  const commitOf = async (ref: string): Promise<string | undefined> => {
    const answer = await ask("rev-parse", "--verify", "--quiet", `${ref}^{commit}`);
    return answer.ok ? answer.stdout : undefined;
  };
  if (experiment.commit_sha !== undefined) {
    const { commit_sha: sha } = experiment;
    return { branch: sha, name: sha.slice(0, 8), commit: await commitOf(sha) };
  }
  const branch = experiment.branch ?? (await defaultBranch(ask));
  return { branch, name: branch, commit: await commitOf(`refs/remotes/origin/${branch}`) };
}

async function defaultBranch(ask: (...args: string[]) => Promise<GitAnswer>): Promise<string> {
  const head = await ask("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD");
  if (head.ok) return head.stdout.replace(/^origin\//, "");
  for (const name of ["main", "master"]) {
    if ((await ask("rev-parse", "--verify", "--quiet", `refs/remotes/origin/${name}`)).ok) return name;
  }
  return "main";
}

/** What stands here but not in the pushed commit. */
async function differences(
  ask: (...args: string[]) => Promise<GitAnswer>,
  target: { commit: string; name: string; rollout: string },
): Promise<string[]> {
  const warnings: string[] = [];
  const [status, ahead, changed] = await Promise.all([
    // Configurations are read here, not from the commit.
    ask("status", "--porcelain", "--", ".", ":(exclude)configs"),
    ask("rev-list", "--count", `${target.commit}..HEAD`),
    ask("diff", "--quiet", target.commit, "--", `rollouts/${target.rollout}`),
  ]);
  const dirty = status.stdout === "" ? [] : status.stdout.split("\n").map((line) => line.slice(3));
  if (dirty.length > 0) {
    const shown = dirty.slice(0, SHOWN_CHANGES).join(", ");
    const rest = dirty.length > SHOWN_CHANGES ? ", …" : "";
    warnings.push(
      `${dirty.length} uncommitted ${dirty.length === 1 ? "change is" : "changes are"} not part of the run: ${shown}${rest}`,
    );
  }
  if (ahead.ok && ahead.stdout !== "0") {
    warnings.push(
      `${ahead.stdout} local ${ahead.stdout === "1" ? "commit is" : "commits are"} not in ${target.name} as pushed; \`git push\` adds them.`,
    );
  }
  if (!changed.ok) warnings.push(`rollouts/${target.rollout} differs here from what the run will use.`);
  return warnings;
}

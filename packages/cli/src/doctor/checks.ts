import { lstatSync, readdirSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { authRoutes, errorMessage, OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { credentialStore, openSession, resolvePlatformUrl } from "../platform/session.ts";
import { git, type GitOptions } from "../workspace/git.ts";
import type { Identity } from "../workspace/identity.ts";
import { AGENT_FILES, missingDirectories } from "../workspace/layout.ts";
import { bringCommit, manyCommits, remoteCommit, standingTo } from "../workspace/remote-branch.ts";
import { checkNode } from "./node-check.ts";

/** One thing that the doctor looked at. An `error` makes the command fail; a `warning` is good to know. */
export type Check = {
  readonly name: string;
  readonly status: "ok" | "warning" | "error" | "skipped";
  readonly message: string;
  /** What to do about it. */
  readonly hint?: string;
  /** Paths that are missing, relative to the workspace; `--fix` makes them. */
  readonly missing?: readonly string[];
};

const HEALTH_TIMEOUT_MS = 5000;

/** Everything that must be in place before a run can be submitted from a workspace. */
export async function checkWorkspace(
  context: Context,
  root: string,
  identity: Identity | undefined,
): Promise<Check[]> {
  const [node, platform, pushed] = await Promise.all([
    checkNode(context),
    checkPlatform(context, identity),
    checkPushed(context, root, identity),
  ]);
  return [
    node,
    checkOrigin(identity),
    checkPaths("directories", missingDirectories(root), "all required folders are there"),
    checkPaths(
      "agent files",
      AGENT_FILES.filter((path) => !isFile(join(root, path))),
      AGENT_FILES.join(", "),
    ),
    checkSkills(root),
    ...platform,
    ...pushed,
  ];
}

/** Skills whose link for Claude Code is missing or leads elsewhere, as paths of those links. */
export function missingSkillLinks(root: string): { missing: string[]; wrong: string[]; skills: string[] } {
  const skills = foldersIn(join(root, ".agents/skills"));
  const missing: string[] = [];
  const wrong: string[] = [];
  for (const skill of skills) {
    const link = join(root, ".claude/skills", skill);
    const found = lstatSync(link, { throwIfNoEntry: false });
    if (found === undefined) missing.push(`.claude/skills/${skill}`);
    else if (!found.isSymbolicLink() || readlinkSync(link) !== skillTarget(skill))
      wrong.push(`.claude/skills/${skill}`);
  }
  return { missing, wrong, skills };
}

export function skillTarget(skill: string): string {
  return `../../.agents/skills/${skill}`;
}

function checkOrigin(identity: Identity | undefined): Check {
  if (identity !== undefined) {
    return { name: "origin", status: "ok", message: `${identity.name} (${identity.displayUrl})` };
  }
  return {
    name: "origin",
    status: "warning",
    message: "the repository has no usable `origin`, so no platform knows it",
    hint: "`osmosis workspace list` shows the clone URL; set it with `git remote add origin URL`.",
  };
}

function checkPaths(name: string, missing: readonly string[], fine: string): Check {
  if (missing.length === 0) return { name, status: "ok", message: fine };
  return {
    name,
    status: "error",
    message: `missing: ${missing.join(", ")}`,
    hint: "`osmosis doctor --fix` creates them.",
    missing,
  };
}

function checkSkills(root: string): Check {
  const { missing, wrong, skills } = missingSkillLinks(root);
  if (skills.length === 0) {
    return {
      name: "skills",
      status: "warning",
      message: "there are no skills in .agents/skills",
      hint: "`osmosis doctor --fix` copies them from the template.",
      missing: [".agents/skills"],
    };
  }
  if (missing.length > 0) return checkPaths("skills", missing, "");
  if (wrong.length > 0) {
    return {
      name: "skills",
      status: "warning",
      message: `not linked to .agents/skills: ${wrong.join(", ")}`,
      hint: "Remove them and run `osmosis doctor --fix`, unless they are different on purpose.",
    };
  }
  return { name: "skills", status: "ok", message: skills.join(", ") };
}

async function checkPlatform(context: Context, identity: Identity | undefined): Promise<Check[]> {
  let url: string;
  try {
    url = await resolvePlatformUrl(context, credentialStore(context), identity);
    const response = await context.io.fetch(`${url}/api/health`, {
      signal: AbortSignal.any([context.io.interrupted, AbortSignal.timeout(HEALTH_TIMEOUT_MS)]),
    });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
  } catch (error) {
    context.io.interrupted.throwIfAborted();
    return [
      {
        name: "platform",
        status: "warning",
        message: `no platform answers: ${errorMessage(error)}`,
        hint: "Start one with `osmosis up`, or name another with --platform.",
      },
      { name: "login", status: "skipped", message: "needs a platform" },
    ];
  }
  const reachable: Check = { name: "platform", status: "ok", message: url };
  try {
    const session = await openSession(context, identity);
    const { user, workspace } = await session.client.call(authRoutes.verify, {});
    const linked = workspace ? `, workspace ${workspace.name} (${workspace.role})` : "";
    return [reachable, { name: "login", status: "ok", message: `${user.email}${linked}` }];
  } catch (error) {
    if (!(error instanceof OsmosisError)) throw error;
    return [
      reachable,
      {
        name: "login",
        status: "warning",
        message: error.message,
        hint: error.hint ?? "Run `osmosis auth login`.",
      },
    ];
  }
}

async function checkPushed(context: Context, root: string, identity: Identity | undefined): Promise<Check[]> {
  const options = { cwd: root, env: context.io.env, signal: context.io.interrupted };
  const status = await git(["status", "--porcelain"], options);
  const dirty = status.stdout === "" ? 0 : status.stdout.split("\n").length;
  return [
    dirty === 0
      ? { name: "clean", status: "ok", message: "no uncommitted changes" }
      : {
          name: "clean",
          status: "warning",
          message: `${dirty} uncommitted ${dirty === 1 ? "change" : "changes"}; runs use pushed commits only`,
          hint: "Commit and push what a run needs.",
        },
    await checkBranch(options, identity),
  ];
}

/** How HEAD stands to its branch on the platform as it is now: others push, too. */
async function checkBranch(options: GitOptions, identity: Identity | undefined): Promise<Check> {
  const name = "pushed";
  const [upstream, head] = await Promise.all([
    git(["rev-parse", "--verify", "--quiet", "@{upstream}"], options),
    git(["symbolic-ref", "--quiet", "--short", "HEAD"], options),
  ]);
  const [remote, merge] = await Promise.all([
    git(["config", `branch.${head.stdout}.remote`], options),
    git(["config", `branch.${head.stdout}.merge`], options),
  ]);
  const branch = merge.stdout.replace(/^refs\/heads\//, "");
  const place = { remote: remote.stdout, branch };
  const isPlatform = identity !== undefined && remote.ok && merge.ok && head.ok;
  const now = isPlatform ? await remoteCommit(options, place) : undefined;
  if (now === null || (now === undefined && !upstream.ok)) {
    return {
      name,
      status: "warning",
      message: "the branch has no upstream",
      hint: "Push it once: `git push -u origin HEAD`.",
    };
  }
  const isOld = isPlatform && now === undefined;
  const commit = now ?? upstream.stdout;
  const standing = (await bringCommit(options, { ...place, commit }))
    ? await standingTo(options, commit)
    : undefined;
  if (standing === undefined) {
    return {
      name,
      status: "warning",
      message: `${branch} on the platform is at ${commit.slice(0, 8)}, a commit that this clone does not have`,
      hint: "`git pull`",
    };
  }
  const { ahead, behind } = standing;
  const known = isOld ? `, as of the last fetch: ${place.remote} did not answer` : "";
  if (behind > 0) {
    const message = `${branch} on the platform is ${manyCommits(behind)} ahead of this clone`;
    return ahead === 0
      ? { name, status: "warning", message: `${message}${known}; runs use what is there`, hint: "`git pull`" }
      : {
          name,
          status: "warning",
          message: `${manyCommits(ahead, "unpushed")}, and ${message}${known}; runs use what is there`,
          hint: "`git pull --rebase`, then `git push`: a push alone is refused.",
        };
  }
  return ahead === 0
    ? { name, status: "ok", message: `every commit is pushed${known}` }
    : { name, status: "warning", message: `${manyCommits(ahead, "unpushed")}${known}`, hint: "`git push`" };
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

function foldersIn(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name)
      .toSorted();
  } catch {
    return [];
  }
}

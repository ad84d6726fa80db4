import { OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { git } from "./git.ts";
import { identityOf, type Identity } from "./identity.ts";
import { missingDirectories } from "./layout.ts";

/** A workspace folder: the top of a Git work tree with a repository on a platform. */
export type Workspace = { readonly root: string; readonly identity: Identity };

/** Extras of every envelope that speaks of a workspace. */
export type WorkspaceExtras = {
  readonly git: { readonly identity: string; readonly remote_url: string };
  readonly workspace_directory: string;
};

export function workspaceExtras(workspace: Workspace): WorkspaceExtras {
  return {
    git: { identity: workspace.identity.name, remote_url: workspace.identity.displayUrl },
    workspace_directory: workspace.root,
  };
}

/** The top of the Git work tree around a folder. */
export async function findGitRoot(context: Context, folder = context.io.cwd): Promise<string | undefined> {
  const answer = await git(["rev-parse", "--show-toplevel"], { cwd: folder, env: context.io.env });
  return answer.ok && answer.stdout !== "" ? answer.stdout : undefined;
}

export async function readIdentity(context: Context, root: string): Promise<Identity | undefined> {
  const answer = await git(["remote", "get-url", "origin"], { cwd: root, env: context.io.env });
  return answer.ok ? identityOf(answer.stdout) : undefined;
}

/** The workspace around the current folder, if there is one; whether its folders are complete is not asked. */
export async function findWorkspace(context: Context): Promise<Workspace | undefined> {
  // Both questions at once: they are asked before every call to the platform.
  const [root, identity] = await Promise.all([findGitRoot(context), readIdentity(context, context.io.cwd)]);
  return root === undefined || identity === undefined ? undefined : { root, identity };
}

/**
 * The workspace around the current folder.
 *
 * @throws OsmosisError `WORKSPACE_REQUIRED` outside of a Git work tree or without a usable `origin`, `VALIDATION` when
 * folders are missing.
 */
export async function requireWorkspace(context: Context): Promise<Workspace> {
  const [root, identity] = await Promise.all([findGitRoot(context), readIdentity(context, context.io.cwd)]);
  if (root === undefined) {
    throw new OsmosisError("WORKSPACE_REQUIRED", `${context.io.cwd} is not inside a Git repository.`, {
      hint: "Go to your workspace folder, or make one with `osmosis workspace create NAME --clone`.",
    });
  }
  const missing = missingDirectories(root);
  if (missing.length > 0) {
    throw new OsmosisError(
      "VALIDATION",
      `${root} is not a complete workspace: ${missing.join(", ")} missing.`,
      {
        hint: "Run `osmosis doctor --fix` to create what is missing.",
        details: { missing },
      },
    );
  }
  if (identity === undefined) {
    throw new OsmosisError(
      "WORKSPACE_REQUIRED",
      `The repository in ${root} has no usable \`origin\` remote.`,
      {
        hint: "`osmosis workspace list` shows the clone URL; set it with `git remote add origin URL`.",
      },
    );
  }
  return { root, identity };
}

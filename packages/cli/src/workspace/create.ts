import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { OsmosisError, Slug, workspaceRoutes, type Workspace } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import type { OperationResult } from "../output/result.ts";
import { shellWord } from "../output/shell-word.ts";
import { openSession, type Session } from "../platform/session.ts";
import { git, gitOutput } from "./git.ts";

/** Makes a workspace with its repository from the template and, when wanted, a clone of it. */
export async function createWorkspace(
  context: Context,
  name: string,
  options: { readonly clone?: string | true },
): Promise<OperationResult> {
  const checked = Slug.safeParse(name);
  if (!checked.success) {
    throw new OsmosisError(
      "VALIDATION",
      `"${name}" is not a workspace's name: it ${checked.error.issues[0]?.message ?? ""}.`,
      {
        hint: "Names look like my-agents.",
      },
    );
  }
  const folder =
    options.clone === undefined
      ? undefined
      : freeFolder(context, options.clone === true ? name : options.clone);
  const session = await openSession(context);
  const workspace = await session.client.call(workspaceRoutes.create, { body: { name }, timeoutMs: 120_000 });
  if (folder !== undefined) await clone(context, session, workspace, folder);
  return answer(session, workspace, folder, `Created the workspace ${name}.`, "workspace.create");
}

/** Clones the repository of a workspace that exists. */
export async function cloneWorkspace(
  context: Context,
  name: string,
  folderOption: string | undefined,
): Promise<OperationResult> {
  const folder = freeFolder(context, folderOption ?? name);
  const session = await openSession(context);
  const { workspaces } = await session.client.call(workspaceRoutes.list, {});
  const workspace = workspaces.find((candidate) => candidate.name === name);
  if (workspace === undefined) {
    throw new OsmosisError("NOT_FOUND", `You have no workspace named ${name} at ${session.platformUrl}.`, {
      hint: "`osmosis workspace list` shows the names; `osmosis workspace create` makes one.",
    });
  }
  await clone(context, session, workspace, folder);
  return answer(session, workspace, folder, `Cloned ${name} to ${folder}.`, "workspace.clone");
}

/**
 * The arguments that make Git ask this program for the password of a platform. The empty helper first takes out what
 * the user's own configuration would ask, which knows nothing of this platform.
 */
export function credentialHelper(
  context: Context,
  platformUrl: string,
): readonly (readonly [string, string])[] {
  const { origin } = new URL(platformUrl);
  const program = resolve(import.meta.dirname, "../../bin/osmosis.js");
  const command = `!${shellWord(context.io.nodePath)} ${shellWord(program)} auth git-credential`;
  return [
    [`credential.${origin}.helper`, ""],
    [`credential.${origin}.helper`, command],
  ];
}

async function clone(
  context: Context,
  session: Session,
  workspace: Workspace,
  folder: string,
): Promise<void> {
  const { io } = context;
  const helpers = credentialHelper(context, session.platformUrl);
  const settings = helpers.flatMap(([key, value]) => ["-c", `${key}=${value}`]);
  // The child of git must find the same login as this process, whatever told it.
  const env = { ...io.env, OSMOSIS_PLATFORM_URL: session.platformUrl };
  const cloned = await git([...settings, "clone", "--quiet", workspace.clone_url, folder], {
    cwd: io.cwd,
    env,
    signal: io.interrupted,
  });
  if (!cloned.ok) {
    throw new OsmosisError("PLATFORM_ERROR", `git clone ${workspace.clone_url} failed: ${cloned.stderr}`, {
      hint: `The workspace exists; run \`osmosis workspace clone ${workspace.name}\` to try again.`,
    });
  }
  for (const [key, value] of helpers) {
    await gitOutput(["config", "--add", key, value], { cwd: folder, env: io.env });
  }
}

function freeFolder(context: Context, folder: string): string {
  const path = resolve(context.io.cwd, folder);
  if (!existsSync(path) || readdirSync(path).length === 0) return path;
  throw new OsmosisError("CONFLICT", `${path} exists and is not empty.`, {
    hint: "Name another folder.",
  });
}

function answer(
  session: Session,
  workspace: Workspace,
  folder: string | undefined,
  message: string,
  operation: string,
): OperationResult {
  return {
    kind: "operation",
    operation,
    status: "success",
    message,
    fields: [
      ["Clone URL", workspace.clone_url],
      ...(folder === undefined ? [] : [["Folder", folder] as const]),
      ["View", workspace.platform_url],
    ],
    resource: { ...workspace, folder: folder ?? null },
    nextSteps:
      folder === undefined
        ? [{ command: `osmosis workspace clone ${workspace.name}`, description: "clone it" }]
        : [
            {
              command: `cd ${shellWord(join(folder))} && npm install && osmosis doctor`,
              description: "install what it needs, and check that everything is in place",
            },
          ],
    extras: { platform_url: session.platformUrl },
  };
}

import { existsSync } from "node:fs";
import { rename } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { Context } from "../context.ts";
import { credentialHelper } from "../workspace/create.ts";
import { gitOutput } from "../workspace/git.ts";
import type { RunCommand } from "./cli-child.ts";

export const WORKSPACE_NAME = "quickstart";

const WorkspaceList = z.object({
  items: z.array(z.object({ name: z.string(), clone_url: z.string() })),
});

/** How the quickstart comes to its clone. */
export type WorkspacePlan =
  | { readonly kind: "create"; readonly note: string; readonly args: readonly string[] }
  | { readonly kind: "clone"; readonly note: string; readonly args: readonly string[] }
  | { readonly kind: "continue"; readonly note: string; readonly cloneUrl: string };

/**
 * Continues in the workspace of an earlier quickstart where there is one, here and on the platform, and starts clean
 * otherwise. A clone of a workspace that the platform does not know is moved aside, never deleted.
 */
export async function planWorkspace(
  context: Context,
  parts: { folder: string; listing: unknown },
): Promise<WorkspacePlan> {
  const { folder } = parts;
  const known = WorkspaceList.parse(parts.listing).items.find((item) => item.name === WORKSPACE_NAME);
  const hasClone = existsSync(join(folder, ".git"));
  if (known !== undefined && hasClone) {
    return {
      kind: "continue",
      note: `Continuing in the workspace of an earlier quickstart, ${folder}. Its runs stay; new ones are added.`,
      cloneUrl: known.clone_url,
    };
  }
  if (existsSync(folder)) {
    await rename(
      folder,
      `${folder}.aside-${new Date(context.io.now()).toISOString().replaceAll(/[:.]/g, "-")}`,
    );
  }
  return known === undefined
    ? {
        kind: "create",
        note: "Starting clean, with a new workspace.",
        args: ["workspace", "create", WORKSPACE_NAME, "--clone", folder],
      }
    : {
        kind: "clone",
        note: "Continuing with the workspace of an earlier quickstart; its clone is made anew.",
        args: ["workspace", "clone", WORKSPACE_NAME, folder],
      };
}

/** Points an older clone at the port that the platform has today. */
export async function repointClone(
  context: Context,
  parts: { folder: string; cloneUrl: string; platformUrl: string },
): Promise<void> {
  const options = { cwd: parts.folder, env: context.io.env };
  const before = await gitOutput(["remote", "get-url", "origin"], options);
  if (before === parts.cloneUrl) return;
  await gitOutput(["remote", "set-url", "origin", parts.cloneUrl], options);
  for (const [key, value] of credentialHelper(context, parts.platformUrl)) {
    await gitOutput(["config", "--add", key, value], options);
  }
}

const RunList = z.object({ items: z.array(z.object({ name: z.string(), status: z.string() })) });

/**
 * Stops what an earlier quickstart left unfinished. The worker would finish that first, and this one would wait.
 *
 * @returns the names of the runs
 */
export async function stopLeftovers(run: RunCommand, folder: string): Promise<string[]> {
  const stopped: string[] = [];
  for (const kind of ["eval", "train"] as const) {
    const { items } = RunList.parse(await run([kind, "list"], { cwd: folder }));
    for (const { name, status } of items) {
      if (status !== "pending" && status !== "running") continue;
      await run([kind, "stop", name, "--yes"], { cwd: folder });
      stopped.push(name);
    }
  }
  return stopped;
}

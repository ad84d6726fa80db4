import { OsmosisError } from "@osmosis/protocol";
import type { Context, MiddlewareHandler } from "hono";
import type { WorkspaceAccess, Workspaces } from "../features/workspaces/service.ts";
import type { Platform } from "../platform.ts";
import type { AppEnv } from "./context.ts";

/**
 * Sets `workspace` to the workspace that a request is about, after checking that the user is a member. The dashboard
 * names it in the route (`:workspace`), the command line in the header `X-Osmosis-Git: owner/repo`, or by name in
 * `X-Osmosis-Workspace`, which the official one sends outside of a clone. Goes after `requireUser`.
 *
 * @throws {OsmosisError} with one of the `GIT_…` or `WORKSPACE_SCOPE_…` codes for a header; NOT_FOUND for the route,
 * whether the workspace does not exist or is not the user's.
 */
export function requireWorkspace(platform: Platform): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    c.set("workspace", await accessOf(platform.workspaces, c));
    await next();
  };
}

async function accessOf(workspaces: Workspaces, c: Context<AppEnv>): Promise<WorkspaceAccess> {
  const { id } = c.get("user");
  const inRoute = c.req.param("workspace");
  if (inRoute !== undefined) return await workspaces.accessByName(id, inRoute);
  const repository = c.req.header("x-osmosis-git");
  const name = c.req.header("x-osmosis-workspace")?.trim();
  if (!name) return await workspaces.accessByRepository(id, parseRepository(repository));
  if (repository !== undefined) {
    throw new OsmosisError(
      "VALIDATION",
      "This request names its workspace twice: in X-Osmosis-Git and in X-Osmosis-Workspace.",
      { hint: "Send one of the two headers.", details: { code: "WORKSPACE_SCOPE_HEADER_CONFLICT" } },
    );
  }
  try {
    return await workspaces.accessByName(id, name);
  } catch (error) {
    if (!(error instanceof OsmosisError) || error.code !== "NOT_FOUND") throw error;
    throw new OsmosisError("NOT_FOUND", error.message, {
      hint: "Check the name after --workspace, and as whom you are signed in.",
      details: { code: "WORKSPACE_SCOPE_HEADER_ACCESS_DENIED" },
    });
  }
}

/**
 * `owner/repo` in lower case from the header.
 *
 * @throws {OsmosisError} GIT_SCOPE_HEADER_REQUIRED or GIT_SCOPE_HEADER_INVALID.
 */
export function parseRepository(header: string | undefined): string {
  if (header === undefined || header.trim() === "") {
    throw new OsmosisError(
      "WORKSPACE_REQUIRED",
      "This request names no workspace: the header X-Osmosis-Git or X-Osmosis-Workspace is missing.",
      {
        hint: "Run the command inside a clone of a workspace's repository.",
        details: { code: "GIT_SCOPE_HEADER_REQUIRED" },
      },
    );
  }
  const repository = header.trim().toLowerCase();
  if (!/^[a-z0-9][a-z0-9-]*\/[a-z0-9._-]+$/.test(repository)) {
    throw new OsmosisError("VALIDATION", "The header X-Osmosis-Git is not of the form owner/repo.", {
      hint: "Check `git remote get-url origin`: its last two segments name the repository.",
      details: { code: "GIT_SCOPE_HEADER_INVALID" },
    });
  }
  return repository;
}

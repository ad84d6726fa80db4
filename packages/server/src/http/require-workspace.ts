import { OsmosisError } from "@osmosis/protocol";
import type { MiddlewareHandler } from "hono";
import type { Platform } from "../platform.ts";
import type { AppEnv } from "./context.ts";

/**
 * Sets `workspace` to the workspace that a request is about, after checking that the user is a member. The dashboard
 * names it in the route (`:workspace`), the command line in the header `X-Osmosis-Git: owner/repo`. Goes after
 * `requireUser`.
 *
 * @throws {OsmosisError} with one of the `GIT_…` codes for the header; NOT_FOUND for the route, whether the workspace
 * does not exist or is not the user's.
 */
export function requireWorkspace(platform: Platform): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const user = c.get("user");
    const name = c.req.param("workspace");
    const access =
      name === undefined
        ? await platform.workspaces.accessByRepository(
            user.id,
            parseRepository(c.req.header("x-osmosis-git")),
          )
        : await platform.workspaces.accessByName(user.id, name);
    c.set("workspace", access);
    await next();
  };
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
      "This request names no workspace: the header X-Osmosis-Git is missing.",
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

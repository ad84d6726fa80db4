import { OsmosisError, pageOf, workspaceRoutes as routes, type Workspace } from "@osmosis/protocol";
import type { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import type { WorkspaceAccess } from "./service.ts";
import type { Role } from "./tables.ts";
import { listRollouts, listSyncEvents } from "./store.ts";

/** Workspaces, their repositories' sync history, and the rollouts that were found. */
export function workspaceRoutes(platform: Platform): Hono<AppEnv> {
  const { accounts, db, workspaces } = platform;
  const router = createRouter(platform);

  router.on(routes.list, async ({ user }) => ({
    workspaces: (await workspaces.listFor(user.id)).map((access) => answerOf(platform.url, access)),
  }));

  router.on(routes.create, async ({ body, user }) =>
    answerOf(platform.url, await workspaces.create(user.id, body.name)),
  );

  router.on(routes.rollouts, async ({ query, workspace }) => {
    const { rows, total } = await listRollouts(db, workspace.id, query);
    return {
      rollouts: rows.map((row) => ({
        id: row.id,
        name: row.name,
        description: row.description,
        is_active: row.is_active,
        branch: row.branch,
        repo_full_name: workspace.repository,
        last_synced_commit_sha: row.last_synced_commit_sha,
        last_synced_at: row.updated_at.toISOString(),
        created_at: row.created_at.toISOString(),
      })),
      ...pageOf(total, query.offset, rows.length),
    };
  });

  router.on(routes.members, async ({ workspace }) => ({ members: await workspaces.members(workspace.id) }));

  router.on(routes.setMember, async ({ body, workspace }) => {
    requireRole(workspace, body.role === "owner" ? ["owner"] : ["owner", "admin"]);
    const known = await accounts.userByEmail(body.email);
    if (known !== undefined && (await workspaces.roleOf(workspace.id, known.id)) === "owner") {
      requireRole(workspace, ["owner"]);
    }
    const person = known ?? (await accounts.createUser({ email: body.email, name: body.name ?? body.email }));
    await workspaces.addMember(workspace.id, person.id, body.role);
    return {
      member: { id: person.id, email: person.email, name: person.name, role: body.role },
      // A link signs in as its person: only for somebody who has nothing on this server yet.
      sign_in_url: known === undefined ? await accounts.createSignInLink(person.email) : null,
    };
  });

  router.on(routes.removeMember, async ({ params, user, workspace }) => {
    if (params.user_id !== user.id) requireRole(workspace, ["owner"]);
    await workspaces.removeMember(workspace.id, params.user_id);
    return {};
  });

  router.on(routes.syncEvents, async ({ query, workspace }) => {
    const { rows, total } = await listSyncEvents(db, workspace.id, query);
    return {
      sync_events: rows.map((row) => ({
        id: row.id,
        branch: row.branch,
        commit_sha: row.commit_sha,
        author: row.author,
        message: row.message,
        status: row.status,
        rollouts_found: row.rollouts_count ?? 0,
        error: row.error,
        created_at: row.created_at.toISOString(),
      })),
      ...pageOf(total, query.offset, rows.length),
    };
  });

  return router.app;
}

function requireRole(workspace: WorkspaceAccess, roles: readonly Role[]): void {
  if (roles.includes(workspace.role)) return;
  throw new OsmosisError(
    "FORBIDDEN",
    `This takes the role ${roles.join(" or ")}; yours is ${workspace.role}.`,
    {
      hint: "Ask an owner of the workspace.",
    },
  );
}

function answerOf(url: string, access: WorkspaceAccess): Workspace {
  return {
    id: access.id,
    name: access.name,
    role: access.role,
    connected_repo: { id: access.id, repo_full_name: access.repository },
    clone_url: `${url}/${access.repository}.git`,
    platform_url: `${url}/${access.name}`,
  };
}

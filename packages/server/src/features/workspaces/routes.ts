import { pageOf, workspaceRoutes as routes, type Workspace } from "@osmosis/protocol";
import type { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import type { WorkspaceAccess } from "./service.ts";
import { listRollouts, listSyncEvents } from "./store.ts";

/** Workspaces, their repositories' sync history, and the rollouts that were found. */
export function workspaceRoutes(platform: Platform): Hono<AppEnv> {
  const { db, workspaces } = platform;
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
        created_at: row.created_at.toISOString(),
      })),
      ...pageOf(total, query.offset, rows.length),
    };
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

import { pageOf, secretRoutes as routes } from "@osmosis/protocol";
import type { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";

/** Setting, listing and deleting secrets. No route answers with a value. */
export function secretRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  const { secrets } = platform;

  router.on(routes.list, async ({ user, workspace, query }) => {
    const { items, total } = await secrets.list({ workspaceId: workspace.id, userId: user.id }, query);
    return { environment_secrets: items, ...pageOf(total, query.offset, items.length) };
  });

  router.on(routes.set, ({ user, workspace, body }) =>
    secrets.set({ workspaceId: workspace.id, userId: user.id }, body),
  );

  router.on(routes.delete, async ({ user, workspace, body }) => {
    await secrets.delete({ workspaceId: workspace.id, userId: user.id }, body);
    return {};
  });

  return router.app;
}

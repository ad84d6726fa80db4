import { modelRoutes as routes, pageOf } from "@osmosis/protocol";
import type { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import { createModelImports } from "./imports.ts";

/** Base and trained models. */
export function modelRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  const { models } = platform;
  const imports = createModelImports(platform);

  router.on(routes.startImport, ({ user, body }) => imports.start(user, body));
  router.on(routes.import, ({ user, body }) => imports.finish(user, body));
  router.on(routes.base, async ({ query }) => {
    const { items, total } = await models.listBase(query);
    return { models: items, ...pageOf(total, query.offset, items.length) };
  });
  router.on(routes.getBase, ({ workspace, params }) => models.getBase(workspace, params.name));
  router.on(routes.trained, async ({ workspace, query }) => {
    const { items, total } = await models.listTrained(workspace, query);
    return { models: items, ...pageOf(total, query.offset, items.length) };
  });
  router.on(routes.get, ({ workspace, params }) => models.get(workspace, params.name));

  return router.app;
}

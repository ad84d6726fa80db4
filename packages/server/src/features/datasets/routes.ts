import { datasetRoutes as routes, pageOf } from "@osmosis/protocol";
import type { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import { readLog } from "../logs/store.ts";

/** Uploading, listing and reading data sets. */
export function datasetRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  const { datasets, db } = platform;

  router.on(routes.list, async ({ workspace, query }) => {
    const { items, total } = await datasets.list(workspace, query);
    return { datasets: items, ...pageOf(total, query.offset, items.length) };
  });
  router.on(routes.create, ({ workspace, user, body }) => datasets.create(workspace, user.id, body));
  router.on(routes.complete, ({ workspace, params }) => datasets.complete(workspace, params.id));
  router.on(routes.abort, async ({ workspace, params }) => {
    await datasets.abort(workspace, params.id);
    return {};
  });
  router.on(routes.get, ({ workspace, params }) => datasets.get(workspace, params.name));
  router.on(routes.download, ({ workspace, params }) => datasets.download(workspace, params.name));
  router.on(routes.logs, async ({ workspace, params, query }) => {
    const { id } = await datasets.get(workspace, params.name);
    return await readLog(db, id, query);
  });

  return router.app;
}

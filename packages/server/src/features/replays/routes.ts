import { replayRoutes as routes } from "@osmosis/protocol";
import type { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import { getReplay, startReplay, stopReplay } from "./service.ts";

/** Repeating steps of training runs. */
export function replayRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  const parts = { ...platform, bell: platform.runBell };

  router.on(routes.start, ({ user, workspace, params, body }) =>
    startReplay(parts, { user, workspace }, { run: params.name, ...body }),
  );
  router.on(routes.get, ({ workspace, params }) =>
    getReplay(platform.db, workspace, { run: params.name, replayId: params.replay_id }),
  );
  router.on(routes.stop, ({ workspace, params }) =>
    stopReplay(parts, workspace, { run: params.name, replayId: params.replay_id }),
  );
  return router.app;
}

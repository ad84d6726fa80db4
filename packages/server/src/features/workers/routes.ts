import { OsmosisError, workersRoutes as routes } from "@osmosis/protocol";
import type { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import type { User } from "../accounts/service.ts";
import { listWorkers } from "./list.ts";
import { createWorkerToken, listWorkerTokens, revokeWorkerToken } from "./tokens.ts";

/** Worker tokens, and which workers there are. A worker gets the secrets of every run, so the owner alone decides. */
export function workersRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  const ownerOnly = (user: User): void => {
    if (user.id === platform.owner.id) return;
    throw new OsmosisError("FORBIDDEN", "Only the owner of the platform sees and admits workers.", {
      hint: `Ask ${platform.owner.email}.`,
    });
  };

  router.on(routes.list, async ({ user }) => {
    ownerOnly(user);
    return { workers: await listWorkers(platform) };
  });
  router.on(routes.tokens, async ({ user }) => {
    ownerOnly(user);
    return { tokens: await listWorkerTokens(platform) };
  });
  router.on(routes.createToken, ({ user, body }) => {
    ownerOnly(user);
    return createWorkerToken(platform, { name: body.name, createdBy: user.id });
  });
  router.on(routes.revokeToken, ({ user, params }) => {
    ownerOnly(user);
    return revokeWorkerToken(platform, params.id);
  });
  return router.app;
}

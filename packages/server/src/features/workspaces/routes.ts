import { Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import type { Platform } from "../../platform.ts";

/** Workspaces, their repositories' sync history, and the rollouts that were found. */
export function workspaceRoutes(_platform: Platform): Hono<AppEnv> {
  return new Hono<AppEnv>();
}

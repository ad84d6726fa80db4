import { Hono, type Context, type MiddlewareHandler } from "hono";
import type { PathParameters, Route } from "@osmosis/protocol";
import type { z } from "zod";
import type { User } from "../features/accounts/service.ts";
import type { WorkspaceAccess } from "../features/workspaces/service.ts";
import type { Platform } from "../platform.ts";
import type { AppEnv } from "./context.ts";
import { parseBody, parseQuery, parseWorkerBody } from "./parse.ts";
import { requireUser } from "./require-user.ts";
import { requireWorker } from "./require-worker.ts";
import { requireWorkspace } from "./require-workspace.ts";

/** What the handler of a route gets: everything parsed and checked by the route's own schemas. */
export interface Call<Path extends string, Query, Body> {
  params: Record<PathParameters<Path>, string>;
  query: Query;
  body: Body;
  /** Of routes for users and workspaces; reading it elsewhere is a bug and throws. */
  readonly user: User;
  /** Of routes for workspaces. */
  readonly workspace: WorkspaceAccess;
  /** The request as Hono has it, for what a route says beyond its schemas. */
  c: Context<AppEnv>;
}

/** An application to which routes of the protocol are added with their handlers. */
export interface Router {
  readonly app: Hono<AppEnv>;
  /** Serves `route`: checks `access`, parses query and body, and answers what the handler returns as JSON. */
  on<Query extends z.ZodType, Body extends z.ZodType, Answer extends z.ZodType, Path extends string>(
    route: Route<Query, Body, Answer, Path>,
    handler: (
      call: Call<Path, z.output<Query>, z.output<Body>>,
    ) => Promise<z.input<Answer>> | z.input<Answer>,
  ): void;
}

export function createRouter(platform: Platform): Router {
  const app = new Hono<AppEnv>();
  const checks: Record<Route["access"], MiddlewareHandler<AppEnv>[]> = {
    public: [],
    user: [requireUser(platform)],
    workspace: [requireUser(platform), requireWorkspace(platform)],
    worker: [requireWorker(platform)],
  };
  return {
    app,
    on(route, handler) {
      const path = honoPath(route.path);
      const bodyOf = route.access === "worker" ? parseWorkerBody : parseBody;
      for (const check of checks[route.access]) app.on(route.method, path, check);
      app.on(route.method, path, async (c) => {
        const answer = await handler({
          // The names come from the same path that Hono matched.
          params: c.req.param() as Record<string, string> as never,
          query: route.query === undefined ? undefined : parseQuery(c, route.query),
          body: route.body === undefined ? undefined : await bodyOf(c, route.body),
          get user() {
            return present(c.get("user"), "user");
          },
          get workspace() {
            return present(c.get("workspace"), "workspace");
          },
          c,
        } as Parameters<typeof handler>[0]);
        return c.json(answer as object);
      });
    },
  };
}

/** `/runs/{name}` as Hono writes it: `/runs/:name`. */
export function honoPath(path: string): string {
  return path.replaceAll(/\{(\w+)\}/g, ":$1");
}

function present<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw new Error(`A handler asked for the ${name} of a route that has none.`);
  return value;
}

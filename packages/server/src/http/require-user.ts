import { OsmosisError } from "@osmosis/protocol";
import type { MiddlewareHandler } from "hono";
import type { Platform } from "../platform.ts";
import type { AppEnv } from "./context.ts";

/**
 * Lets a request pass when it carries a valid bearer token or the session cookie of a signed-in browser, and sets
 * `user`.
 *
 * @throws {OsmosisError} AUTH_REQUIRED with code AUTH_HEADER_MISSING, TOKEN_INVALID, TOKEN_EXPIRED or TOKEN_REVOKED.
 */
export function requireUser(platform: Platform): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const header = c.req.header("authorization");
    if (header !== undefined) {
      const token = /^bearer +(\S+)$/i.exec(header)?.[1];
      c.set("user", await platform.accounts.userOfToken(token ?? ""));
    } else {
      refuseForeignOrigin(c.req.raw, platform.url);
      const user = await platform.accounts.userOfSession(c.req.raw.headers);
      if (user === undefined) {
        throw new OsmosisError("AUTH_REQUIRED", "This request carries no credentials.", {
          hint: "Sign in with `osmosis auth login`, or open the dashboard and sign in there.",
          details: { code: "AUTH_HEADER_MISSING" },
        });
      }
      c.set("user", user);
    }
    await next();
  };
}

/**
 * A cookie travels with requests that another site makes the browser send, so a change that is authorised by a cookie
 * must come from a page of this server. `Sec-Fetch-Site` cannot be set by pages; `Origin` covers what lacks it.
 */
function refuseForeignOrigin(request: Request, ownUrl: string): void {
  if (request.method === "GET" || request.method === "HEAD") return;
  const site = request.headers.get("sec-fetch-site");
  const origin = request.headers.get("origin");
  const isOwn =
    site === null ? origin === null || isOwnOrigin(origin, request, ownUrl) : site === "same-origin";
  if (!isOwn) {
    throw new OsmosisError("FORBIDDEN", "This change was requested by a page of another site.", {
      hint: "Open the dashboard at the server's own address.",
    });
  }
}

function isOwnOrigin(origin: string, request: Request, ownUrl: string): boolean {
  return origin === new URL(ownUrl).origin || origin === new URL(request.url).origin;
}

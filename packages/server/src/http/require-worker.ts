import { timingSafeEqual } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import type { MiddlewareHandler } from "hono";
import type { Platform } from "../platform.ts";
import type { AppEnv } from "./context.ts";

/**
 * Lets a request of a worker pass: its bearer is the text of `<dataFolder>/worker-secret`.
 *
 * @throws {OsmosisError} AUTH_REQUIRED with code AUTH_HEADER_MISSING or TOKEN_INVALID.
 */
export function requireWorker(platform: Platform): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const header = c.req.header("authorization");
    const given = /^bearer +(\S+)$/i.exec(header ?? "")?.[1] ?? "";
    if (!isSameSecret(given, platform.workerSecret)) {
      throw new OsmosisError(
        "AUTH_REQUIRED",
        "This route is for workers, and the worker's secret does not fit.",
        {
          hint: "Give the worker the text of the file worker-secret in the server's data folder.",
          details: { code: header === undefined ? "AUTH_HEADER_MISSING" : "TOKEN_INVALID" },
        },
      );
    }
    await next();
  };
}

/** Compares in a time that tells nothing about where two secrets differ. */
export function isSameSecret(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

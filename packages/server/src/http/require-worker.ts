import { timingSafeEqual } from "node:crypto";
import { OsmosisError } from "@osmosis/protocol";
import type { MiddlewareHandler } from "hono";
import { isWorkerToken } from "../features/workers/tokens.ts";
import type { Platform } from "../platform.ts";
import type { AppEnv } from "./context.ts";

/** {@link admitWorker} for every request. */
export function requireWorker(platform: Platform): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    await admitWorker(platform, c.req.header("authorization"));
    await next();
  };
}

/**
 * Lets a worker pass: its bearer is a worker token, or the text of `<dataFolder>/worker-secret`. A request that waits
 * asks again before it answers, since the token may have been revoked meanwhile.
 *
 * @throws {OsmosisError} AUTH_REQUIRED with code AUTH_HEADER_MISSING or TOKEN_INVALID.
 */
export async function admitWorker(platform: Platform, header: string | undefined): Promise<void> {
  const given = /^bearer +(\S+)$/i.exec(header ?? "")?.[1] ?? "";
  if (isSameSecret(given, platform.workerSecret) || (await isWorkerToken(platform, given))) return;
  throw new OsmosisError("AUTH_REQUIRED", "This route is for workers, and the worker's token does not fit.", {
    hint: "The platform's owner makes one with `osmosis worker token create`; on the server's machine the file worker-secret in its data folder holds one.",
    details: { code: header === undefined ? "AUTH_HEADER_MISSING" : "TOKEN_INVALID" },
  });
}

/** Compares in a time that tells nothing about where two secrets differ. */
export function isSameSecret(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

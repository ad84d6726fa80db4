/** The routes of a rollout server. `rollout.ts` of the protocol package says what travels. */
import { createHash, randomUUID, timingSafeEqual } from "node:crypto";
import {
  LEASE_HEADER,
  ROLLOUT_PROTOCOL_VERSION,
  type RolloutAdmission,
  RolloutCancelRequest,
  RolloutRequest,
} from "@osmosis/protocol";
import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import type { CancelSelector, RolloutHandle, RolloutRegistry } from "./rollout-registry.ts";
import type { AnyBackend } from "./rollout-runner.ts";
import { isCallbackForm, resultReply, statusReply } from "./wire-result.ts";

export type RolloutAppParts = {
  readonly backend: AnyBackend;
  readonly registry: RolloutRegistry;
  readonly serverToken: string | null;
  readonly instanceId: string | null;
  readonly resultWaitMs: number;
  readonly leaseMs: number;
  /** True once no more rollouts are taken. */
  readonly isDraining: () => boolean;
  readonly start: (request: RolloutRequest, rolloutId: string, handle: RolloutHandle) => void;
  readonly log: (text: string) => void;
};

const RETRY_AFTER_SECONDS = "5";
const LARGEST_BODY_BYTES = 64 * 1024 * 1024;

export function createRolloutApp(parts: RolloutAppParts): Hono {
  const { backend, registry, serverToken } = parts;
  const app = new Hono();
  app.onError((error, c) => {
    parts.log(error.stack ?? error.message);
    return c.json({ detail: "The rollout server failed; its log has the details." }, 500);
  });
  app.notFound((c) => c.json({ detail: `There is no ${c.req.method} ${c.req.path}.` }, 404));

  app.use(async (c, next) => {
    // Only browsers send an origin, and no web page has business here.
    if (c.req.header("origin") === undefined) return next();
    return c.json({ detail: "Rollout servers do not answer web pages." }, 403);
  });

  app.get("/health", (c) => c.json(healthReply(parts)));

  if (serverToken !== null) {
    const expected = digest(`Bearer ${serverToken}`);
    app.use(async (c, next) => {
      if (timingSafeEqual(digest(c.req.header("authorization") ?? ""), expected)) return next();
      return c.json({ detail: "This rollout server demands its bearer token." }, 401);
    });
  }

  app.post("/rollout", bodyLimit({ maxSize: LARGEST_BODY_BYTES }), async (c) => {
    const parsed = RolloutRequest.safeParse(await readBody(c));
    if (!parsed.success) return c.json({ detail: problems(parsed.error.issues) }, 422);
    const request = parsed.data;
    const rolloutId = request.rollout_id ?? randomUUID().replaceAll("-", "");
    if (registry.get(rolloutId)) {
      return c.json(
        { detail: `Rollout ${rolloutId} was started already; every rollout needs its own id.` },
        409,
      );
    }
    if (parts.isDraining() || !backend.hasCapacity()) {
      c.header("Retry-After", RETRY_AFTER_SECONDS);
      return parts.isDraining()
        ? c.json({ detail: "The rollout server is shutting down." }, 503)
        : c.json({ detail: "The rollout server is at capacity." }, 429);
    }
    const lease = !isCallbackForm(request);
    const handle = registry.admit(rolloutId, { lease, label: request.label ?? null });
    parts.start(request, rolloutId, handle);
    return c.json(handle.leaseToken === null ? {} : admission(rolloutId, handle.leaseToken, parts), 202);
  });

  app.get("/rollout/:id/status", (c) => {
    const rolloutId = c.req.param("id");
    return c.json(statusReply(rolloutId, registry.get(rolloutId)));
  });

  app.get("/rollout/:id/result", async (c) => {
    const rolloutId = c.req.param("id");
    const missing = { detail: `There is no rollout ${rolloutId}, or its result is no longer kept.` };
    if (!registry.get(rolloutId)) return c.json(missing, 404);
    if (!registry.ownsLease(rolloutId, c.req.header(LEASE_HEADER) ?? "")) {
      return c.json({ detail: `The header ${LEASE_HEADER} is missing or not this rollout's.` }, 403);
    }
    const entry = await registry.poll(rolloutId, { waitMs: parts.resultWaitMs, signal: c.req.raw.signal });
    return entry ? c.json(resultReply(entry)) : c.json(missing, 404);
  });

  app.post("/rollout/cancel", bodyLimit({ maxSize: LARGEST_BODY_BYTES }), async (c) => {
    const parsed = RolloutCancelRequest.safeParse(await readBody(c));
    if (!parsed.success) return c.json({ detail: problems(parsed.error.issues) }, 422);
    return c.json({ dispositions: registry.cancel(selectorOf(parsed.data)) });
  });

  return app;
}

function healthReply({ backend, instanceId, isDraining }: RolloutAppParts) {
  const { maxConcurrent, queued, running, ...names } = backend.health();
  return {
    ...names,
    status: isDraining() ? "draining" : "ok",
    concurrency: { max_concurrent: maxConcurrent, queued, running },
    ...(instanceId === null ? {} : { instance_id: instanceId }),
    protocol_version: ROLLOUT_PROTOCOL_VERSION,
    capabilities: ["lease_polling", "callbacks", "status", "cancel"],
  };
}

function admission(
  rolloutId: string,
  leaseToken: string,
  times: Pick<RolloutAppParts, "resultWaitMs" | "leaseMs">,
): RolloutAdmission {
  return {
    rollout_id: rolloutId,
    status: "queued",
    polling_lease_token: leaseToken,
    result_wait_timeout_sec: times.resultWaitMs / 1000,
    polling_lease_timeout_sec: times.leaseMs / 1000,
  };
}

/** A body that is no JSON is refused by the schema like any other wrong body. */
async function readBody(c: Context): Promise<unknown> {
  const text = await c.req.text();
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

type Problem = { type: string; loc: (string | number)[]; msg: string };

function problems(
  issues: readonly { code: string; path: readonly PropertyKey[]; message: string }[],
): Problem[] {
  return issues.map(({ code, path, message }) => ({
    type: code,
    loc: ["body", ...path.map((key) => (typeof key === "number" ? key : String(key)))],
    msg: message,
  }));
}

function selectorOf(request: RolloutCancelRequest): CancelSelector {
  if (request.ids) return { type: "ids", ids: request.ids };
  return request.prefix ? { type: "prefix", prefix: request.prefix } : { type: "all" };
}

/** Hashes are of one length, which a constant-time comparison needs. */
function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

import { Readable } from "node:stream";
import {
  OsmosisError,
  RUN_LEASE_HEADER,
  workerRoutes as routes,
  workerStreams as streams,
} from "@osmosis/protocol";
import type { Context, Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { admitWorker, requireWorker } from "../../http/require-worker.ts";
import { createRouter, honoPath } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import { appendLog } from "../logs/store.ts";
import { registerCheckpoint } from "./checkpoint.ts";
import { claimRun } from "./claim.ts";
import { putRunFile, streamRollouts, streamRows, streamStepRollouts } from "./files.ts";
import { readLeasedRun, renewLease, type Lease } from "./lease.ts";
import { commitStep, finishRun, recordRollouts } from "./records.ts";

/** What workers ask and tell. Every route but `claim` is about a run whose lease the request carries. */
export function workerApiRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  const { app } = router;
  const parts = { ...platform, bell: platform.runBell };
  const ok = { ok: true } as const;

  router.on(routes.claim, async ({ body, c }) => ({
    job: await claimRun(parts, body, {
      waitMs: body.wait_ms,
      lane: body.lane,
      signal: c.req.raw.signal,
      admit: () => admitWorker(platform, c.req.header("authorization")),
    }),
  }));
  router.on(routes.heartbeat, ({ c }) => renewLease(parts, leaseOf(c)));
  router.on(routes.record, async ({ c, body }) => {
    await recordRollouts(parts, leaseOf(c), body.rollouts);
    return ok;
  });
  router.on(routes.commitStep, async ({ c, body }) => {
    await commitStep(parts, leaseOf(c), body);
    return ok;
  });
  router.on(routes.checkpoint, async ({ c, body }) => ({
    name: await registerCheckpoint(parts, leaseOf(c), body),
  }));
  router.on(routes.log, async ({ c, body }) => {
    const { id } = await readLeasedRun(platform.db, leaseOf(c), platform.now());
    await appendLog(platform.db, id, body.entries);
    return ok;
  });
  router.on(routes.finish, async ({ c, body }) => {
    await finishRun(parts, leaseOf(c), body);
    return ok;
  });

  const worker = requireWorker(platform);
  app.get(honoPath(streams.rows), worker, async (c) => {
    const run = await readLeasedRun(platform.db, leaseOf(c), platform.now());
    return ndjson(c, await streamRows(platform, run));
  });
  app.get(honoPath(streams.rollouts), worker, async (c) =>
    ndjson(c, await streamRollouts(platform, leaseOf(c))),
  );
  app.get(honoPath(streams.stepRollouts), worker, async (c) =>
    ndjson(c, await streamStepRollouts(platform, leaseOf(c), Number(c.req.param("step")))),
  );
  app.get(honoPath(streams.source), worker, async (c) => {
    const run = await readLeasedRun(platform.db, leaseOf(c), platform.now());
    const archive = await platform.repositories.archive(run.workspace_id, run.commit_sha);
    // Node's and the DOM's declarations of the same web stream differ in name only.
    const body = Readable.toWeb(archive) as ReadableStream<Uint8Array>;
    return c.body(body, 200, { "content-type": "application/x-tar" });
  });
  app.put(honoPath(streams.file), worker, async (c) => {
    const { body, signal } = c.req.raw;
    await putRunFile(parts, leaseOf(c), { path: c.req.param("path") ?? "", body, signal });
    return c.json(ok);
  });

  return app;
}

/** @throws {OsmosisError} VALIDATION without the header. */
function leaseOf(c: Context<AppEnv>): Lease {
  const token = c.req.header(RUN_LEASE_HEADER);
  if (token !== undefined && token !== "") return { runId: c.req.param("run_id") ?? "", token };
  throw new OsmosisError("VALIDATION", `The header ${RUN_LEASE_HEADER} is missing.`, {
    hint: "Send the lease token that the claim of the run answered with.",
  });
}

function ndjson(c: Context<AppEnv>, body: ReadableStream<Uint8Array>): Response {
  return c.body(body, 200, { "content-type": "application/x-ndjson" });
}

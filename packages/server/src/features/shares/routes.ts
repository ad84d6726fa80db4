import { Readable } from "node:stream";
import {
  OsmosisError,
  RUN_LEASE_HEADER,
  shareRoutes as routes,
  shareStreams,
  sharingRoutes,
} from "@osmosis/protocol";
import type { Context, Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { admitWorker, requireWorker } from "../../http/require-worker.ts";
import { createRouter, honoPath } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import { appendLog } from "../logs/store.ts";
import { streamRows } from "../worker-api/files.ts";
import { claimShare } from "./claim-share.ts";
import { collectShared, publishShares, publishWeights, withdrawShare } from "./holder.ts";
import { recordShare } from "./record-share.ts";
import { giveBackShare, readHeldShare, renewShare, type ShareLease } from "./share-lease.ts";

/** How the rollouts of a run are spread over workers: for the one that holds the run, and for those that help. */
export function sharesRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  const { app } = router;
  const parts = { ...platform, bell: platform.runBell };
  const ok = { ok: true } as const;
  const runLeaseOf = (c: Context<AppEnv>) => ({ runId: c.req.param("run_id") ?? "", token: tokenOf(c) });

  router.on(sharingRoutes.weights, async ({ c, body }) => {
    await publishWeights(parts, runLeaseOf(c), body);
    return ok;
  });
  router.on(sharingRoutes.publish, async ({ c, body }) => {
    await publishShares(parts, runLeaseOf(c), body.shares);
    return ok;
  });
  router.on(sharingRoutes.withdraw, async ({ c, body }) => ({
    rollout_ids: await withdrawShare(parts, runLeaseOf(c), body.share_id),
  }));
  router.on(sharingRoutes.collect, ({ c, body }) =>
    collectShared(parts, runLeaseOf(c), {
      after: body.after,
      knownOpen: body.known_open,
      waitMs: body.wait_ms,
      signal: c.req.raw.signal,
    }),
  );

  router.on(routes.claim, async ({ c, body }) => ({
    share: await claimShare(
      parts,
      { worker: body.worker, instance: body.instance, exceptRuns: body.except_runs },
      {
        waitMs: body.wait_ms,
        signal: c.req.raw.signal,
        admit: () => admitWorker(platform, c.req.header("authorization")),
      },
    ),
  }));
  router.on(routes.heartbeat, async ({ c }) => {
    await renewShare(parts, shareLeaseOf(c));
    return ok;
  });
  router.on(routes.record, async ({ c, body }) => {
    await recordShare(parts, shareLeaseOf(c), body.rollouts);
    return ok;
  });
  router.on(routes.giveBack, async ({ c, body }) => {
    const share = await giveBackShare(platform, shareLeaseOf(c));
    await appendLog(platform.db, share.run_id, [
      {
        timestamp: platform.now().toISOString(),
        level: "warning",
        step: "platform",
        message: `The worker ${share.worker ?? ""} cannot help with this run: ${body.reason}`,
      },
    ]);
    platform.runBell.ring();
    return ok;
  });
  router.on(routes.log, async ({ c, body }) => {
    const share = await readHeldShare(platform.db, shareLeaseOf(c), platform.now());
    await appendLog(platform.db, share.run_id, body.entries);
    return ok;
  });

  const worker = requireWorker(platform);
  const runOf = async (c: Context<AppEnv>) => {
    const { run_id: id } = await readHeldShare(platform.db, shareLeaseOf(c), platform.now());
    return platform.db.selectFrom("runs").selectAll().where("id", "=", id).executeTakeFirstOrThrow();
  };
  app.get(honoPath(shareStreams.rows), worker, async (c) => {
    const rows = await streamRows(platform, await runOf(c));
    return c.body(rows, 200, { "content-type": "application/x-ndjson" });
  });
  app.get(honoPath(shareStreams.source), worker, async (c) => {
    const run = await runOf(c);
    const archive = await platform.repositories.archive(run.workspace_id, run.commit_sha);
    // Node's and the DOM's declarations of the same web stream differ in name only.
    return c.body(Readable.toWeb(archive) as ReadableStream<Uint8Array>, 200, {
      "content-type": "application/x-tar",
    });
  });

  return app;
}

function shareLeaseOf(c: Context<AppEnv>): ShareLease {
  return { shareId: c.req.param("share_id") ?? "", token: tokenOf(c) };
}

/** @throws {OsmosisError} VALIDATION without the header. */
function tokenOf(c: Context<AppEnv>): string {
  const token = c.req.header(RUN_LEASE_HEADER);
  if (token !== undefined && token !== "") return token;
  throw new OsmosisError("VALIDATION", `The header ${RUN_LEASE_HEADER} is missing.`, {
    hint: "Send the lease token that the claim answered with.",
  });
}

import { setTimeout as sleep } from "node:timers/promises";
import { errorMessage } from "@osmosis/protocol";
import type { Log } from "../../platform.ts";
import { leaseEnd, releaseRun, type LeaseParts } from "./lease.ts";

const SWEEP_MS = 2000;

/**
 * Takes runs from workers that have fallen silent, until it is disposed. While no server ran nobody could renew a lease,
 * so at the start all of them begin anew, those of shares, too.
 */
export async function sweepLeases(parts: LeaseParts & { readonly log: Log }): Promise<AsyncDisposable> {
  const { db, log } = parts;
  await db
    .updateTable("runs")
    .set({ lease_expires_at: leaseEnd(parts) })
    .where("status", "=", "running")
    .where("lease_expires_at", "is not", null)
    .execute();
  await db
    .updateTable("run_shares")
    .set({ lease_expires_at: leaseEnd(parts) })
    .where("lease_expires_at", "is not", null)
    .execute();
  const closing = new AbortController();
  const done = (async () => {
    while (!closing.signal.aborted) {
      await sleep(SWEEP_MS, undefined, { signal: closing.signal }).catch(() => {});
      if (closing.signal.aborted) return;
      try {
        await releaseExpired(parts);
      } catch (error) {
        log({ level: "error", message: `Looking for lost workers failed: ${errorMessage(error)}` });
      }
    }
  })();
  return {
    async [Symbol.asyncDispose]() {
      closing.abort();
      await done;
    },
  };
}

/** Takes every run from its worker whose lease has expired. */
export async function releaseExpired(parts: LeaseParts): Promise<void> {
  const { db, now } = parts;
  const expired = await db
    .selectFrom("runs")
    .select(["id", "kind", "lease_token", "job_attempt", "worker"])
    .where("status", "=", "running")
    .where("lease_expires_at", "<=", now())
    .execute();
  for (const run of expired) {
    await releaseRun(parts, run, {
      reason: `The worker ${run.worker ?? ""} has fallen silent`,
      ifExpired: true,
    });
  }
}

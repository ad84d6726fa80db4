import { OsmosisError } from "@osmosis/protocol";
import { sql, type Kysely, type Selectable } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import { leaseEnd, type LeasedRun } from "../worker-api/lease.ts";

/**
 * A share goes
 *
 *     open → held → done          (all of its rollouts are recorded: no task is left)
 *      ↓      ↓
 *      ↓     open                 (the lease ended, or the worker gave it back)
 *     withdrawn                   (the holder of the run runs it itself)
 *
 * Whoever holds it shows a token, as with a run; a write under a lost lease is refused with CONFLICT and changes nothing.
 * A share counts only while the run is held under the lease that it was published under.
 */
export type ShareLease = { readonly shareId: string; readonly token: string };

export type HeldShare = Selectable<Tables["run_shares"]>;

/** A condition of SQL: nobody holds the share `s`, and something is left to do. */
export const isOpen = (now: Date) =>
  sql<boolean>`not s.withdrawn and jsonb_array_length(s.tasks) > 0
    and (s.lease_expires_at is null or s.lease_expires_at <= ${now})`;

/** A condition of SQL: somebody works on the share `s`. */
export const isHeld = (now: Date) =>
  sql<boolean>`not s.withdrawn and jsonb_array_length(s.tasks) > 0 and s.lease_expires_at > ${now}`;

/**
 * Locks the run and then the share inside a transaction, if the lease holds. Whatever locks both does it in this order.
 *
 * @throws {OsmosisError} CONFLICT.
 */
export async function lockHeldShare(
  transaction: Kysely<Tables>,
  lease: ShareLease,
  now: Date,
): Promise<{ share: HeldShare; run: LeasedRun }> {
  const { run_id: runId } = await readHeldShare(transaction, lease, now);
  await transaction.selectFrom("runs").select("id").where("id", "=", runId).forUpdate().execute();
  await transaction
    .selectFrom("run_shares")
    .select("id")
    .where("id", "=", lease.shareId)
    .forUpdate()
    .execute();
  const share = await readHeldShare(transaction, lease, now);
  const run = await transaction
    .selectFrom("runs")
    .selectAll()
    .where("id", "=", runId)
    .executeTakeFirstOrThrow();
  return { share, run };
}

/** {@link lockHeldShare} without the locks, for what only reads or is checked again before it counts. */
export async function readHeldShare(db: Kysely<Tables>, lease: ShareLease, now: Date): Promise<HeldShare> {
  const share = await db
    .selectFrom("run_shares")
    .selectAll()
    .where("id", "=", lease.shareId)
    .executeTakeFirst();
  if (share === undefined) throw lost("The share is gone.");
  if (share.withdrawn) throw lost("The share was taken back.");
  if (share.lease_token !== lease.token) throw lost("The share was given to another worker.");
  if (share.lease_expires_at === null || share.lease_expires_at <= now) {
    throw lost("The lease of the share has expired.");
  }
  const run = await db
    .selectFrom("runs")
    .select(["status", "lease_token"])
    .where("id", "=", share.run_id)
    .executeTakeFirst();
  if (run?.status !== "running" || run.lease_token !== share.holder_token) {
    throw lost("The run of the share has ended, or another worker holds it.");
  }
  return share;
}

/** @throws {OsmosisError} CONFLICT when the lease is lost. */
export async function renewShare(
  parts: Pick<Platform, "config" | "db" | "now">,
  lease: ShareLease,
): Promise<void> {
  const { db, now } = parts;
  const share = await readHeldShare(db, lease, now());
  const renewed = await db
    .updateTable("run_shares")
    .set({ lease_expires_at: leaseEnd(parts) })
    .where("id", "=", lease.shareId)
    .where("lease_token", "=", lease.token)
    .where("lease_expires_at", ">", now())
    .returning("id")
    .executeTakeFirst();
  if (renewed === undefined) throw lost("The lease of the share has just expired.");
  await db
    .updateTable("workers")
    .set({ last_seen_at: now() })
    .where("instance", "=", share.worker_instance)
    .execute();
}

/** Lets others have the share. */
export async function giveBackShare(
  parts: Pick<Platform, "db" | "now">,
  lease: ShareLease,
): Promise<HeldShare> {
  const { db, now } = parts;
  const share = await readHeldShare(db, lease, now());
  await db
    .updateTable("run_shares")
    .set({ lease_token: null, lease_expires_at: null, worker: null, worker_instance: null })
    .where("id", "=", lease.shareId)
    .where("lease_token", "=", lease.token)
    .execute();
  return share;
}

function lost(message: string): OsmosisError {
  return new OsmosisError("CONFLICT", message, { hint: "Drop what was done for it, and claim another one." });
}

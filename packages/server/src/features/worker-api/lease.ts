import { OsmosisError } from "@osmosis/protocol";
import type { Kysely, Selectable } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import type { Bell } from "../../queue/bell.ts";
import { queueOf } from "../../queue/job-types.ts";
import { appendLog } from "../logs/store.ts";
import { endRun } from "../runs/lifecycle.ts";
import { discardStates } from "../runs/states.ts";

/**
 * A worker holds a run by a lease: a token that only it knows, until a time that its heartbeats move on. Whoever writes
 * for the run shows the token; when the time has passed, or the run has ended or was given to somebody else, the write
 * is refused with CONFLICT and changes nothing. So of two workers that both believe to hold a run at most one writes.
 *
 * A worker that is started again gives up its lease at once, so the time matters only for machines that are lost. It is
 * long enough for a heartbeat to come through on a machine that has far more to do than cores.
 */

/** The claim to a run that a request makes. */
export type Lease = { readonly runId: string; readonly token: string };

export type LeasedRun = Selectable<Tables["runs"]>;

export type LeaseParts = Pick<Platform, "config" | "db" | "queue" | "blobs" | "now"> & {
  readonly bell: Bell;
};

/**
 * Locks the row of a run inside a transaction, if the lease holds.
 *
 * @throws {OsmosisError} NOT_FOUND; CONFLICT.
 */
export async function lockLeasedRun(
  transaction: Kysely<Tables>,
  lease: Lease,
  now: Date,
): Promise<LeasedRun> {
  const run = await transaction
    .selectFrom("runs")
    .selectAll()
    .where("id", "=", lease.runId)
    .forUpdate()
    .executeTakeFirst();
  return checkLease(run, lease, now);
}

/** {@link lockLeasedRun} without the lock, for what only reads or is checked again before it counts. */
export async function readLeasedRun(db: Kysely<Tables>, lease: Lease, now: Date): Promise<LeasedRun> {
  const run = await db.selectFrom("runs").selectAll().where("id", "=", lease.runId).executeTakeFirst();
  return checkLease(run, lease, now);
}

function checkLease(run: LeasedRun | undefined, lease: Lease, now: Date): LeasedRun {
  if (run === undefined) throw new OsmosisError("NOT_FOUND", "There is no such run.");
  if (run.status !== "running") throw leaseLost(`The run ${run.name} is ${run.status}.`);
  if (run.lease_token !== lease.token) throw leaseLost(`The run ${run.name} was given to another worker.`);
  if (run.lease_expires_at === null || run.lease_expires_at <= now) {
    throw leaseLost(`The lease of the run ${run.name} has expired.`);
  }
  return run;
}

function leaseLost(message: string): OsmosisError {
  return new OsmosisError("CONFLICT", message, { hint: "Drop what was done for it, and claim a run again." });
}

/** When a lease ends that is given or renewed now. */
export function leaseEnd({ config, now }: Pick<Platform, "config" | "now">): Date {
  return new Date(now().getTime() + config.leaseSeconds * 1000);
}

/** @throws {OsmosisError} CONFLICT when the lease is lost. */
export async function renewLease(parts: LeaseParts, lease: Lease): Promise<{ stop_requested: boolean }> {
  const { db, queue, now } = parts;
  const run = await db
    .updateTable("runs")
    .set({ lease_expires_at: leaseEnd(parts) })
    .where("id", "=", lease.runId)
    .where("lease_token", "=", lease.token)
    .where("status", "=", "running")
    .where("lease_expires_at", ">", now())
    .returning(["kind", "stop_requested", "job_attempt", "worker_instance"])
    .executeTakeFirst();
  if (run === undefined) {
    await readLeasedRun(db, lease, now());
    throw leaseLost("The lease has just expired.");
  }
  await db
    .updateTable("workers")
    .set({ last_seen_at: now() })
    .where("instance", "=", run.worker_instance)
    .execute();
  await queue.touch({ queue: queueOf(run), id: lease.runId, attempt: run.job_attempt });
  return { stop_requested: run.stop_requested };
}

/**
 * Takes a run from its worker and queues it again, or ends it when its end was asked for. Nothing happens when the lease
 * has changed hands since `run` was read, or, with `ifExpired`, was renewed.
 */
export async function releaseRun(
  parts: LeaseParts,
  run: Pick<LeasedRun, "id" | "kind" | "lease_token" | "job_attempt">,
  options: { readonly reason: string; readonly ifExpired: boolean },
): Promise<void> {
  const { db, queue, now, bell } = parts;
  const outcome = await db.transaction().execute(async (transaction) => {
    const released = await transaction
      .updateTable("runs")
      .set({ lease_token: null, lease_expires_at: null, worker: null, worker_instance: null })
      .where("id", "=", run.id)
      .where("status", "=", "running")
      .where("lease_token", "=", run.lease_token)
      .$if(options.ifExpired, (query) => query.where("lease_expires_at", "<=", now()))
      .returning(["stop_requested", "attempt"])
      .executeTakeFirst();
    if (released === undefined) return "held";
    await appendLog(transaction, run.id, [
      {
        timestamp: now().toISOString(),
        level: "warning",
        step: "platform",
        message: `${options.reason} (attempt ${released.attempt}).`,
      },
    ]);
    if (!released.stop_requested) return "released";
    await endRun(transaction, run, { status: "stopped", error: null, at: now() });
    return "ended";
  });
  const job = { queue: queueOf(run), id: run.id, attempt: run.job_attempt };
  if (outcome === "released") {
    await queue.fail(job, options.reason, { retry: true });
    bell.ring();
  } else if (outcome === "ended") {
    await queue.complete(job);
    await discardStates(parts, run.id);
  }
}

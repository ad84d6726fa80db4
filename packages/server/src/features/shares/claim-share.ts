import { randomBytes } from "node:crypto";
import { OsmosisError, TrainerChoice, type Share } from "@osmosis/protocol";
import { sql } from "kysely";
import { appendLog } from "../logs/store.ts";
import type { ClaimParts } from "../worker-api/claim.ts";
import { fileRef, workOf } from "../worker-api/job.ts";
import { leaseEnd, type LeasedRun } from "../worker-api/lease.ts";
import { isHeld, isOpen, type HeldShare } from "./share-lease.ts";

type Claimant = {
  readonly worker: string;
  readonly instance: string;
  readonly exceptRuns: readonly string[];
};

/**
 * Waits for a share and gives it to the worker: of the run that has the fewest workers. Null when none came in time, or
 * as soon as a run waits for a worker.
 */
export async function claimShare(
  parts: ClaimParts,
  claimant: Claimant,
  options: {
    readonly waitMs: number;
    readonly signal: AbortSignal;
    /** Throws when the worker's token was revoked while it waited: it would get the secrets of a run. */
    readonly admit: () => Promise<void>;
  },
): Promise<Share | null> {
  const { now, bell } = parts;
  const end = now().getTime() + options.waitMs;
  await releaseFormer(parts, claimant);
  while (!options.signal.aborted) {
    const share = await takeShare(parts, claimant);
    if (share !== undefined) {
      if (!options.signal.aborted) return share;
      // The worker went away while it was given the share.
      await releaseFormer(parts, claimant);
      break;
    }
    const leftMs = end - now().getTime();
    if (leftMs <= 0) return null;
    await bell.wait(Math.min(leftMs, 1000), options.signal);
    await options.admit();
    if (await runsWait(parts)) return null;
  }
  return null;
}

/** A worker that asks for a share works on none: neither this instance nor an earlier life of it. */
async function releaseFormer({ db }: ClaimParts, { worker, instance }: Claimant): Promise<void> {
  await db
    .updateTable("run_shares")
    .set({ lease_token: null, lease_expires_at: null, worker: null, worker_instance: null })
    .where("lease_token", "is not", null)
    .where((eb) => eb.or([eb("worker", "=", worker), eb("worker_instance", "=", instance)]))
    .execute();
}

async function runsWait({ db }: ClaimParts): Promise<boolean> {
  const waiting = await db
    .selectFrom("runs")
    .select("id")
    .where("kind", "!=", "replay")
    .where((eb) =>
      eb.or([
        eb("status", "=", "pending"),
        eb.and([eb("status", "=", "running"), eb("lease_token", "is", null)]),
      ]),
    )
    .limit(1)
    .executeTakeFirst();
  return waiting !== undefined;
}

async function takeShare(parts: ClaimParts, claimant: Claimant): Promise<Share | undefined> {
  const { db, now } = parts;
  const { rows: candidates } = await sql<{ id: string; held: number }>`
    select r.id, count(*) filter (where ${isHeld(now())}) as held
    from run_shares s
    join runs r on r.id = s.run_id and r.status = 'running' and r.lease_token = s.holder_token
    where not r.stop_requested
    group by r.id, r.created_at
    having count(*) filter (where ${isOpen(now())}) > 0
    order by held, r.created_at`.execute(db);
  for (const { id } of candidates) {
    if (claimant.exceptRuns.includes(id)) continue;
    const work = await workThatExists(parts, id);
    const taken = work === undefined ? undefined : await takeShareOf(parts, id, claimant);
    if (work !== undefined && taken !== undefined) return await shareOf(parts, work, taken);
  }
  return undefined;
}

type Work = Awaited<ReturnType<typeof workOf>> & Pick<Share, "trainer_choice">;

/** Undefined for a run that nobody can help any more, as when a secret was deleted that its holder has. */
async function workThatExists(parts: ClaimParts, runId: string): Promise<Work | undefined> {
  const run = await parts.db.selectFrom("runs").selectAll().where("id", "=", runId).executeTakeFirst();
  try {
    if (run === undefined) return undefined;
    return { ...(await workOf(parts, run)), trainer_choice: TrainerChoice.parse(run.config.advanced) };
  } catch (error) {
    if (error instanceof OsmosisError) return undefined;
    throw error;
  }
}

/** The run's row is locked first, so that not more workers help than the configuration says. */
function takeShareOf(parts: ClaimParts, runId: string, claimant: Claimant): Promise<HeldShare | undefined> {
  const { db, now } = parts;
  return db.transaction().execute(async (transaction): Promise<HeldShare | undefined> => {
    const run = await transaction
      .selectFrom("runs")
      .selectAll()
      .where("id", "=", runId)
      .forUpdate()
      .executeTakeFirst();
    if (run?.status !== "running" || run.lease_token === null) return undefined;
    const { held } = await transaction
      .selectFrom("run_shares as s")
      .select((eb) => eb.fn.countAll<number>().as("held"))
      .where("run_id", "=", runId)
      .where("holder_token", "=", run.lease_token)
      .where(isHeld(now()))
      .executeTakeFirstOrThrow();
    if (held + 1 >= rolloutWorkersOf(run)) return undefined;
    const found = await transaction
      .selectFrom("run_shares as s")
      .select(["id", "attempt", "tasks"])
      .where("run_id", "=", runId)
      .where("holder_token", "=", run.lease_token)
      .where(isOpen(now()))
      .orderBy("number")
      .limit(1)
      .forUpdate()
      .skipLocked()
      .executeTakeFirst();
    if (found === undefined) return undefined;
    const share = await transaction
      .updateTable("run_shares")
      .set({
        worker: claimant.worker,
        worker_instance: claimant.instance,
        lease_token: randomBytes(24).toString("base64url"),
        lease_expires_at: leaseEnd(parts),
        attempt: found.attempt + 1,
      })
      .where("id", "=", found.id)
      .returningAll()
      .executeTakeFirstOrThrow();
    if (found.attempt > 0) {
      await appendLog(transaction, runId, [
        {
          timestamp: now().toISOString(),
          level: "warning",
          step: "platform",
          message:
            `${found.tasks.length} rollouts that a worker did not bring to their end are handed out again, ` +
            `to the worker ${claimant.worker}.`,
        },
      ]);
    }
    return share;
  });
}

function rolloutWorkersOf({ config }: LeasedRun): number {
  // Runs of an earlier release have no such setting.
  const { rollout_workers: workers } = config.advanced as { readonly rollout_workers?: number };
  return workers ?? 1;
}

async function shareOf(parts: ClaimParts, work: Work, share: HeldShare): Promise<Share> {
  const weights = await parts.db
    .selectFrom("run_weights")
    .selectAll()
    .where("run_id", "=", share.run_id)
    .executeTakeFirst();
  return {
    ...work,
    share_id: share.id,
    lease_token: share.lease_token ?? "",
    weights:
      weights === undefined
        ? null
        : {
            version: weights.version,
            method: weights.method,
            files: weights.files.map((file) => fileRef(parts, file)),
          },
    tasks: [...share.tasks],
  };
}

import { randomBytes } from "node:crypto";
import { OsmosisError, errorMessage, type Job } from "@osmosis/protocol";
import { sql } from "kysely";
import type { Platform } from "../../platform.ts";
import { REPLAY_QUEUE, RUN_QUEUE, RunJob, queueOf } from "../../queue/job-types.ts";
import type { Job as QueueJob } from "../../queue/queue.ts";
import { appendLog } from "../logs/store.ts";
import { endRun, isFinal, type RunEndStatus } from "../runs/lifecycle.ts";
import { discardStates } from "../runs/states.ts";
import { jobOf } from "./job.ts";
import { leaseEnd, releaseRun, type LeasedRun, type LeaseParts } from "./lease.ts";

/** A run that was handed out so often without recording anything is ended. */
const MAX_FRUITLESS_ATTEMPTS = 5;

const WORKERS_KEPT_DAYS = 30;

export type ClaimParts = LeaseParts & Pick<Platform, "blobUrls" | "keys" | "secrets" | "url">;

type Identity = { readonly worker: string; readonly instance: string };

/** Waits for a run and gives it to the worker; null when none came in time or the worker is gone. */
export async function claimRun(
  parts: ClaimParts,
  identity: Identity,
  options: {
    readonly waitMs: number;
    readonly lane: "runs" | "replays";
    readonly signal: AbortSignal;
    /** Throws when the worker's token was revoked while it waited: it would get the secrets of a run. */
    readonly admit: () => Promise<void>;
  },
): Promise<Job | null> {
  const { queue, now, bell } = parts;
  const end = now().getTime() + options.waitMs;
  await releaseFormer(parts, identity);
  while (!options.signal.aborted) {
    const queued = await queue.claim(options.lane === "replays" ? REPLAY_QUEUE : RUN_QUEUE);
    if (queued !== undefined) {
      const job = await assign(parts, identity, queued);
      if (job === undefined) continue;
      if (!options.signal.aborted) return job;
      await takeBack(parts, job);
      break;
    }
    const leftMs = end - now().getTime();
    if (leftMs <= 0) break;
    await bell.wait(Math.min(leftMs, 1000), options.signal);
    await options.admit();
  }
  return null;
}

/**
 * A worker that starts again has lost what it held before, so it is taken from it at once rather than when the lease
 * ends. So is what a worker holds that asks for more: the answer that told it of the run did not arrive.
 */
async function releaseFormer(parts: ClaimParts, { worker, instance }: Identity): Promise<void> {
  const { db, now } = parts;
  const seen = await db
    .insertInto("workers")
    .values({ instance, name: worker, first_seen_at: now(), last_seen_at: now() })
    .onConflict((conflict) => conflict.column("instance").doUpdateSet({ last_seen_at: now() }))
    .returning(sql<boolean>`xmax = 0`.as("isNew"))
    .executeTakeFirstOrThrow();
  const held = await db
    .selectFrom("runs")
    .select(["id", "kind", "lease_token", "job_attempt"])
    .where("status", "=", "running")
    .where("lease_token", "is not", null)
    .where(seen.isNew ? "worker" : "worker_instance", "=", seen.isNew ? worker : instance)
    .execute();
  for (const run of held)
    await releaseRun(parts, run, { reason: `The worker ${worker} started again`, ifExpired: false });
  if (seen.isNew) {
    const old = new Date(now().getTime() - WORKERS_KEPT_DAYS * 24 * 3600 * 1000);
    await db.deleteFrom("workers").where("last_seen_at", "<", old).execute();
  }
}

/** The worker went away while it was given the run. */
async function takeBack(parts: ClaimParts, { run_id: id, lease_token }: Job): Promise<void> {
  const run = await parts.db
    .selectFrom("runs")
    .select(["id", "kind", "lease_token", "job_attempt"])
    .where("id", "=", id)
    .where("lease_token", "=", lease_token)
    .executeTakeFirst();
  if (run === undefined) return;
  await releaseRun(parts, run, {
    reason: "The worker went away before it heard of the run",
    ifExpired: false,
  });
}

/** Gives the run of a queued job to a worker; undefined when there is nothing left to do for it. */
async function assign(parts: ClaimParts, identity: Identity, queued: QueueJob): Promise<Job | undefined> {
  const { db, queue, now } = parts;
  const { run_id: runId } = RunJob.parse(queued.payload);
  const run = await db.transaction().execute(async (transaction): Promise<LeasedRun | "held" | undefined> => {
    const found = await transaction
      .selectFrom("runs")
      .selectAll()
      .where("id", "=", runId)
      .forUpdate()
      .executeTakeFirst();
    if (found === undefined || isFinal(found.status)) return undefined;
    if (found.lease_expires_at !== null && found.lease_expires_at > now()) {
      // The queue heard nothing of the run while no server was there. Its worker goes on, and renews this job from now on.
      await transaction
        .updateTable("runs")
        .set({ job_attempt: queued.attempt })
        .where("id", "=", runId)
        .execute();
      return "held";
    }
    if (found.stop_requested) {
      await endRun(transaction, found, { status: "stopped", error: null, at: now() });
      return undefined;
    }
    if (found.fruitless_attempts >= MAX_FRUITLESS_ATTEMPTS) {
      await endRun(transaction, found, { ...crash(found), at: now() });
      return undefined;
    }
    await appendLog(transaction, runId, [
      {
        timestamp: now().toISOString(),
        level: "info",
        step: "platform",
        message: `The worker ${identity.worker} takes the run (attempt ${found.attempt + 1}).`,
      },
    ]);
    return await transaction
      .updateTable("runs")
      .set({
        status: "running",
        started_at: found.started_at ?? now(),
        worker: identity.worker,
        worker_instance: identity.instance,
        lease_token: randomBytes(24).toString("base64url"),
        lease_expires_at: leaseEnd(parts),
        attempt: found.attempt + 1,
        fruitless_attempts: found.fruitless_attempts + 1,
        job_attempt: queued.attempt,
      })
      .where("id", "=", runId)
      .returningAll()
      .executeTakeFirstOrThrow();
  });
  if (run === "held") return undefined;
  if (run === undefined) {
    await queue.complete(queued);
    await discardStates(parts, runId);
    return undefined;
  }
  try {
    return await jobOf(parts, run);
  } catch (error) {
    await failToStart(parts, run, error);
    return undefined;
  }
}

function crash(run: LeasedRun): { status: RunEndStatus; error: string } {
  return {
    status: run.kind === "training" ? "crashed" : "failed",
    error:
      `The run crashed: ${MAX_FRUITLESS_ATTEMPTS} workers in a row lost it without recording anything. ` +
      "The end of its log tells what each was doing; the usual cause is too little memory.",
  };
}

/** A run whose secrets or files are gone cannot be executed by anybody. */
async function failToStart(parts: ClaimParts, run: LeasedRun, error: unknown): Promise<void> {
  if (!(error instanceof OsmosisError)) throw error;
  const { db, queue, now } = parts;
  const text = error.hint === undefined ? error.message : `${error.message}. ${error.hint}`;
  await db.transaction().execute(async (transaction) => {
    await endRun(transaction, run, { status: "failed", error: text, at: now() });
    await appendLog(transaction, run.id, [
      { timestamp: now().toISOString(), level: "error", step: "platform", message: errorMessage(text) },
    ]);
  });
  await queue.complete({ queue: queueOf(run), id: run.id, attempt: run.job_attempt });
  await discardStates(parts, run.id);
}

import type { Kysely } from "kysely";
import { fromKysely, PgBoss, type CommandResponse } from "pg-boss";
import { z } from "zod";
import type { Database } from "../database/open.ts";
import type { Tables } from "../database/tables.ts";

/**
 * Work that outlives processes. A job goes
 *
 *     queued → active → done
 *                ↓ ↑
 *              queued       (the lease ran out, or `fail` with `retry`)
 *
 * `claim` gives a job to one caller, together with a lease of {@link LEASE_SECONDS}. `touch` renews the lease. A caller
 * that dies stops renewing, and within a minute the job is queued again for somebody else, as often as that happens:
 * a job ends only by `complete`, `cancel` or a final `fail`. Each claim is an attempt with its own number, and whoever
 * lost a job to a later attempt is told so by `false`: stop, another one works on it. Handlers must therefore be able
 * to start over or to continue from what they stored.
 */
export interface Queue extends AsyncDisposable {
  /**
   * Queues a job. With an `id` (a UUID) this is idempotent: a job is there once, in whatever state. Inside a database
   * transaction pass it, so that the job is there if and only if the transaction commits.
   */
  enqueue(
    queue: string,
    payload: object,
    options?: { id?: string; priority?: number; transaction?: Kysely<Tables> },
  ): Promise<void>;
  /** The next job of the highest priority, or `undefined` at once when there is none. */
  claim(queue: string): Promise<Job | undefined>;
  /** Renews the lease. `false`: the job is no longer this attempt's, or was cancelled. */
  touch(job: JobAttempt): Promise<boolean>;
  /** Ends the job. `false`: the job is no longer this attempt's. */
  complete(job: JobAttempt, options?: { transaction?: Kysely<Tables> }): Promise<boolean>;
  /** Gives the job up: for good, or with `retry` to be claimed again at once. */
  fail(job: JobAttempt, reason: string, options?: { retry?: boolean }): Promise<boolean>;
  /** Ends a job from outside, whether it waits or is worked on. */
  cancel(queue: string, id: string): Promise<void>;
  /** Queues a job again whose caller is known to be dead. Nothing happens to one that waits or has ended. */
  release(queue: string, id: string): Promise<void>;
  /** Hands the jobs of dead callers out again now, rather than at the next look at the leases. */
  sweep(): Promise<void>;
}

export interface JobAttempt {
  queue: string;
  id: string;
  /** 0 for the first claim. */
  attempt: number;
}

export interface Job extends JobAttempt {
  /** What was queued; check it with the schema of its queue. */
  payload: unknown;
}

/** How long a claimed job stays with a caller who is silent. Touch it every quarter of this. */
export const LEASE_SECONDS = 45;

const SWEEP_SECONDS = 10;

/** Opens the queues on a database; their tables live in the schema `pgboss`. */
export async function openQueue(options: {
  database: Database;
  queues: readonly string[];
  onError: (error: Error) => void;
}): Promise<Queue> {
  const { database } = options;
  const boss = new PgBoss({
    db: database.queueConnection,
    backend: database.kind,
    schedule: false,
    registerInstance: false,
    openTelemetry: { enabled: false },
    superviseIntervalSeconds: SWEEP_SECONDS,
    monitorIntervalSeconds: SWEEP_SECONDS,
    monitorVacuum: false,
    reindex: false,
  });
  boss.on("error", options.onError);
  await boss.start();
  for (const name of options.queues) {
    const settings = {
      heartbeatSeconds: LEASE_SECONDS,
      // The longest that pg-boss allows. A job that takes longer starts another attempt.
      expireInSeconds: 24 * 3600 - 1,
      retryLimit: 1_000_000,
      retryDelay: 0,
    };
    await boss.createQueue(name, settings);
    await boss.updateQueue(name, settings);
  }
  return {
    async enqueue(queue, payload, { id, priority = 0, transaction } = {}) {
      await boss.send(queue, payload, {
        priority,
        ...(id === undefined ? {} : { id }),
        ...within(transaction),
      });
    },
    async claim(queue) {
      const [job] = await boss.fetch<object>(queue, { includeMetadata: true });
      return job === undefined
        ? undefined
        : { queue, id: job.id, attempt: job.retryCount, payload: job.data };
    },
    async touch(job) {
      return tookEffect(await boss.touch(job.queue, reference(job)));
    },
    async complete(job, { transaction } = {}) {
      return tookEffect(await boss.complete(job.queue, reference(job), null, within(transaction)));
    },
    async fail(job, reason, { retry = false } = {}) {
      if (retry) return tookEffect(await boss.fail(job.queue, reference(job), { reason }));
      // A final failure is an end like any other for the queue; the reason is kept as its result.
      return tookEffect(await boss.complete(job.queue, reference(job), { reason }));
    },
    async cancel(queue, id) {
      await boss.cancel(queue, id);
    },
    async release(queue, id) {
      for (const job of await boss.findJobs(queue, { id })) {
        if (job.state === "active") {
          await boss.fail(queue, { id, retryCount: job.retryCount }, { reason: "its caller died" });
        }
      }
    },
    async sweep() {
      for (const name of options.queues) await boss.supervise(name);
    },
    async [Symbol.asyncDispose]() {
      await boss.stop({ graceful: false, close: false });
    },
  };
}

/** The library answers how many jobs a command changed, and leaves that out of its declarations. */
const Affected = z.object({ affected: z.number() });

function tookEffect(response: CommandResponse): boolean {
  return Affected.parse(response).affected > 0;
}

function within(transaction: Kysely<Tables> | undefined) {
  return transaction === undefined ? {} : { db: fromKysely(transaction) };
}

/** The claim of one attempt: a command with it does nothing once the job has gone to a later one. */
function reference({ id, attempt }: JobAttempt) {
  return { id, retryCount: attempt };
}

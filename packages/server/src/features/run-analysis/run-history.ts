import { ABORTED_MINUTES, PASS_THRESHOLD, type RunHistory } from "@osmosis/controller";
import { AcceptedTrainingConfig, TrainingStatus, type Finding, type RolloutOutcome } from "@osmosis/protocol";
import { sql, type Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { RunRow } from "../runs/run-rows.ts";

/** A page that is open asks again and again, and a run may have thousands of steps: no rule needs all of them. */
const FIRST_STEPS = 10;
const NEWEST_STEPS = 200;
const EXAMPLES = 5;
/** Steps in which examples are looked for. */
const EXAMPLE_STEPS = 10;

/** Everything that the doctor wants to know about a training run, at this moment. */
export async function runHistory(
  db: Kysely<Tables>,
  row: RunRow,
  { now, leaseSeconds }: { readonly now: Date; readonly leaseSeconds: number },
): Promise<RunHistory> {
  const steps = await db
    .selectFrom("run_steps")
    .select(["step", "metrics", "created_at"])
    .where("run_id", "=", row.id)
    .where((by) =>
      by.or([
        by("step", "<=", FIRST_STEPS),
        by("step", ">", row.committed_steps - NEWEST_STEPS),
        sql<boolean>`jsonb_exists(metrics, 'eval/validation/pass_rate')`,
      ]),
    )
    .orderBy("step")
    .execute();
  const open = await db
    .selectFrom("run_rollouts")
    .select([
      sql<number>`count(*)::int`.as("rollouts"),
      sql<number>`count(reward)::int`.as("rewarded"),
      sql<Date | null>`max(created_at)`.as("newest"),
    ])
    .where("run_id", "=", row.id)
    .where("phase", "=", "train")
    .where("step", "=", row.committed_steps + 1)
    .executeTakeFirstOrThrow();
  const recent = await outcomesSince(
    db,
    row.id,
    new Date(now.getTime() - ABORTED_MINUTES * 60_000),
  ).execute();
  const newestAt = open.newest === null ? null : open.newest.getTime();
  const signs = [row.started_at?.getTime(), steps.at(-1)?.created_at.getTime(), newestAt];
  return {
    status: TrainingStatus.parse(row.status),
    error: row.error,
    now: now.getTime(),
    createdAt: row.created_at.getTime(),
    startedAt: row.started_at?.getTime() ?? null,
    // Between two workers nobody holds a lease: what the last one did is the last sign of life.
    heartbeatAt:
      row.lease_expires_at === null ? newestOf(signs) : row.lease_expires_at.getTime() - leaseSeconds * 1000,
    leaseSeconds,
    attempts: row.attempt,
    config: AcceptedTrainingConfig.parse(row.config),
    steps: steps.map(({ step, metrics, created_at }) => ({
      step,
      metrics,
      committedAt: created_at.getTime(),
    })),
    open: { rollouts: open.rollouts, rewarded: open.rewarded, newestAt },
    recent: Object.fromEntries(recent.map(({ outcome, count }) => [outcome, count])),
    examples: await examplesOf(db, row),
    neverPassed: await neverPassed(db, row),
  };
}

/** Without executing it: a test looks at how it would be. */
export function outcomesSince(db: Kysely<Tables>, runId: string, time: Date) {
  return db
    .selectFrom("run_rollouts")
    .select(["outcome", sql<number>`count(*)::int`.as("count")])
    .where("run_id", "=", runId)
    .where("created_at", ">", time)
    .groupBy("outcome");
}

function newestOf(times: readonly (number | null | undefined)[]): number | null {
  return times.reduce<number | null>(
    (newest, time) => (time == null ? newest : Math.max(newest ?? 0, time)),
    null,
  );
}

async function examplesOf(
  db: Kysely<Tables>,
  { id, committed_steps: committed }: Pick<RunRow, "id" | "committed_steps">,
): Promise<Partial<Record<RolloutOutcome, Finding["rollouts"]>>> {
  const ranked = db
    .selectFrom("run_rollouts")
    .select([
      "rollout_id as id",
      "step",
      "outcome",
      "number",
      sql<number>`row_number() over (partition by outcome order by number desc)`.as("rank"),
    ])
    .where("run_id", "=", id)
    .where("step", ">", committed - EXAMPLE_STEPS)
    .where("outcome", "!=", "ok");
  const rows = await db
    .selectFrom(ranked.as("ranked"))
    .select(["id", "step", "outcome"])
    .where("rank", "<=", EXAMPLES)
    .orderBy("number", "desc")
    .execute();
  const examples: Partial<Record<RolloutOutcome, Finding["rollouts"]>> = {};
  for (const row of rows) examples[row.outcome] = [...(examples[row.outcome] ?? []), row];
  return examples;
}

/** Rows of the newest steps whose rollouts were rewarded, and none of them so that it passes. */
async function neverPassed(
  db: Kysely<Tables>,
  { id, committed_steps: committed }: Pick<RunRow, "id" | "committed_steps">,
): Promise<RunHistory["neverPassed"]> {
  const rows = await db
    .selectFrom("run_rollouts")
    .select([
      "row_index as row",
      sql<number>`count(reward)::int`.as("rollouts"),
      sql<string>`(array_agg(rollout_id order by number desc))[1]`.as("id"),
      sql<number>`(array_agg(step order by number desc))[1]`.as("step"),
      sql<RolloutOutcome>`(array_agg(outcome order by number desc))[1]`.as("outcome"),
    ])
    .where("run_id", "=", id)
    .where("phase", "=", "train")
    .where("step", ">", committed - EXAMPLE_STEPS)
    .where("step", "<=", committed)
    .where("reward", "is not", null)
    .groupBy("row_index")
    .having(sql<boolean>`max(reward) < ${PASS_THRESHOLD}`)
    .orderBy("rollouts", "desc")
    .orderBy("row_index")
    .limit(EXAMPLES)
    .execute();
  return rows.map(({ row, rollouts, ...example }) => ({ row, rollouts, example }));
}

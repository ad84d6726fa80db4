import { sql, type Kysely } from "kysely";

/** What a grader told beside the reward, of the rollouts of evaluations: their results hold the means. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql.raw(`alter table run_rollouts add column metrics jsonb not null default '{}'`).execute(db);
}

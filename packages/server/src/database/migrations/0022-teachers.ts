import { sql, type Kysely } from "kysely";

/** The teacher of a training run, as it was when the run was submitted. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql.raw(`alter table runs add column teacher jsonb`).execute(db);
}

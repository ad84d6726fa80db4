import { sql, type Kysely } from "kysely";

/** Every list of training runs shows the newest validation of each. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql
    .raw(
      `create index run_steps_validated on run_steps (run_id, step)
        where jsonb_exists(metrics, 'eval/validation/pass_rate')`,
    )
    .execute(db);
}

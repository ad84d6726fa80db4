import { sql, type Kysely } from "kysely";

/** Pages of a run's rollouts, and what is new among them, without reading all of a long run's. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `create index run_rollouts_shown on run_rollouts (run_id, step desc, phase, row_index, sample_index, number)`,
  `create index run_rollouts_recent on run_rollouts (run_id, created_at)`,
];

import { sql, type Kysely } from "kysely";

/** Which checkpoints of a run are the best and the last one, and whose files were removed. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `alter table trained_models add column validation_reward double precision`,
  `alter table trained_models add column is_best boolean not null default false`,
  `alter table trained_models add column is_last boolean not null default false`,
  `alter table trained_models add column files_removed_at timestamptz`,
  // Of what was trained before, the reward alone says which is the best.
  `update trained_models set
    is_last = step = (select max(other.step) from trained_models as other where other.run_id = trained_models.run_id),
    is_best = reward is not null and id = (
      select other.id from trained_models as other
      where other.run_id = trained_models.run_id and other.reward is not null
      order by other.reward desc, other.step limit 1)`,
];

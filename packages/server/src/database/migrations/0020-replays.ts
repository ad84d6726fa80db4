import { sql, type Kysely } from "kysely";

/** Replays: rows of `runs` that repeat steps of another run. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `alter table runs add column replay_of text references runs (id) on delete cascade`,
  `alter table runs add column replay jsonb`,
  `create index runs_replays on runs (replay_of) where replay_of is not null`,
];

import { sql, type Kysely } from "kysely";

/** Secrets of workspaces and of their members, sealed. A row without a user is the workspace's. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `create table secrets (
    id text primary key,
    workspace_id text not null references workspaces (id) on delete cascade,
    user_id text references users (id) on delete cascade,
    name text not null,
    sealed text not null,
    created_by text references users (id) on delete set null,
    updated_by text references users (id) on delete set null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
  )`,
  `create unique index secrets_owner on secrets (workspace_id, coalesce(user_id, ''), name)`,
];

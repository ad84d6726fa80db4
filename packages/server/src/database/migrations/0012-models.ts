import { sql, type Kysely } from "kysely";

/** Base models of the server, and the models that training runs of a workspace made. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `create table base_models (
    id text primary key,
    name text not null unique,
    parameters bigint not null,
    files jsonb not null,
    is_available boolean not null default true,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
  )`,
  `create table trained_models (
    id text primary key,
    workspace_id text not null references workspaces (id) on delete cascade,
    run_id text not null,
    run_name text not null,
    name text not null,
    base_model text not null,
    base_files jsonb not null,
    method text not null,
    step integer not null,
    reward double precision,
    size_bytes bigint not null,
    files jsonb not null,
    created_at timestamptz not null default now(),
    unique (workspace_id, name),
    unique (run_id, step)
  )`,
];

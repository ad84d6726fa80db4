import { sql, type Kysely } from "kysely";

/** Data sets with every version that was uploaded, and the log lines of data sets and runs. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `create table datasets (
    id text primary key,
    workspace_id text not null references workspaces (id) on delete cascade,
    name text not null,
    created_at timestamptz not null default now(),
    unique (workspace_id, name)
  )`,
  `create table dataset_versions (
    id text primary key,
    dataset_id text not null references datasets (id) on delete cascade,
    number integer not null,
    status text not null,
    format text not null,
    size_bytes bigint not null,
    part_size bigint,
    row_count integer,
    preview jsonb,
    error text,
    created_by text references users (id) on delete set null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique (dataset_id, number)
  )`,
  `create table log_lines (
    id bigint generated always as identity primary key,
    subject_id text not null,
    timestamp timestamptz not null,
    level text not null,
    step text not null,
    message text not null,
    details jsonb
  )`,
  `create index log_lines_subject on log_lines (subject_id, id)`,
];

import { sql, type Kysely } from "kysely";

/** Workspaces, who may use them, and what the pushes to their repositories brought. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `create table workspaces (
    id text primary key,
    name text not null unique,
    repository text not null unique,
    default_branch text not null,
    created_at timestamptz not null default now()
  )`,
  `create table memberships (
    workspace_id text not null references workspaces (id) on delete cascade,
    user_id text not null references users (id) on delete cascade,
    role text not null,
    created_at timestamptz not null default now(),
    primary key (workspace_id, user_id)
  )`,
  `create index memberships_user on memberships (user_id)`,
  `create table branches (
    workspace_id text not null references workspaces (id) on delete cascade,
    name text not null,
    commit_sha text not null,
    updated_at timestamptz not null default now(),
    primary key (workspace_id, name)
  )`,
  `create table sync_events (
    id text primary key,
    workspace_id text not null references workspaces (id) on delete cascade,
    branch text not null,
    commit_sha text not null,
    author text not null,
    message text not null,
    status text not null,
    rollouts_count integer,
    error text,
    created_at timestamptz not null default now(),
    finished_at timestamptz
  )`,
  `create index sync_events_newest on sync_events (workspace_id, created_at desc)`,
  `create table rollouts (
    id text primary key,
    workspace_id text not null references workspaces (id) on delete cascade,
    branch text not null,
    name text not null,
    description text,
    is_active boolean not null default true,
    last_synced_commit_sha text not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique (workspace_id, branch, name)
  )`,
];

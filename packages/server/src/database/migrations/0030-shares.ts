import { sql, type Kysely } from "kysely";

/** Shares of a run's rollouts for other workers, the weights that they sample from, and worker tokens. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `create table run_shares (
    id text primary key,
    run_id text not null references runs (id) on delete cascade,
    number bigint generated always as identity,
    holder_token text not null,
    phase text not null,
    step integer not null,
    tasks jsonb not null,
    withdrawn boolean not null default false,
    worker text,
    worker_instance text,
    lease_token text,
    lease_expires_at timestamptz,
    attempt integer not null default 0,
    created_at timestamptz not null default now()
  )`,
  `create index run_shares_run on run_shares (run_id, number)`,
  `create index run_shares_worker on run_shares (worker)`,
  `create table run_weights (
    run_id text primary key references runs (id) on delete cascade,
    version integer not null,
    method text not null,
    files jsonb not null
  )`,
  `alter table run_rollouts add column share_id text`,
  `alter table run_rollouts add column worker text`,
  `create index run_rollouts_shared on run_rollouts (run_id, number) where share_id is not null`,
  `create table worker_tokens (
    id text primary key,
    name text not null,
    token_hash text not null unique,
    prefix text not null,
    created_by text not null references users (id) on delete cascade,
    created_at timestamptz not null default now(),
    last_used_at timestamptz,
    revoked_at timestamptz
  )`,
];

import { sql, type Kysely } from "kysely";

/** Evaluation and training runs, what they recorded, and the leases by which workers hold them. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `create table runs (
    id text primary key,
    workspace_id text not null references workspaces (id) on delete cascade,
    kind text not null,
    name text not null,
    status text not null,
    error text,
    stop_requested boolean not null default false,
    created_by text not null references users (id) on delete cascade,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    completed_at timestamptz,
    rollout_id text not null,
    rollout text not null,
    entrypoint text not null,
    branch text,
    commit_sha text not null,
    dataset_id text not null,
    dataset_version_id text not null,
    dataset_name text not null,
    dataset_rows integer not null,
    row_indexes jsonb,
    model jsonb not null,
    config jsonb not null,
    secret_sources jsonb not null,
    total_steps integer,
    committed_steps integer not null default 0,
    examples integer not null default 0,
    state_files jsonb not null,
    results jsonb,
    idempotency_key text,
    request_sha256 text,
    worker text,
    worker_instance text,
    lease_token text,
    lease_expires_at timestamptz,
    attempt integer not null default 0,
    fruitless_attempts integer not null default 0,
    job_attempt integer not null default 0,
    unique (workspace_id, name),
    unique (workspace_id, kind, idempotency_key)
  )`,
  `create index runs_newest on runs (workspace_id, kind, created_at desc)`,
  `create index runs_running on runs (status) where status = 'running'`,
  `create table run_secrets (
    run_id text not null references runs (id) on delete cascade,
    name text not null,
    sealed text not null,
    primary key (run_id, name)
  )`,
  `create table run_steps (
    run_id text not null references runs (id) on delete cascade,
    step integer not null,
    metrics jsonb not null,
    examples integer not null,
    created_at timestamptz not null default now(),
    primary key (run_id, step)
  )`,
  `create table run_files (
    run_id text not null references runs (id) on delete cascade,
    path text not null,
    key text not null,
    size_bytes bigint not null,
    sha256 text not null,
    primary key (run_id, path)
  )`,
  `create table run_rollouts (
    run_id text not null references runs (id) on delete cascade,
    rollout_id text not null,
    number bigint generated always as identity,
    phase text not null,
    step integer not null,
    row_index integer not null,
    sample_index integer not null,
    outcome text not null,
    reward double precision,
    error text,
    prompt_tokens integer not null,
    completion_tokens integer not null,
    model_calls integer not null,
    prefix_breaks integer not null,
    duration_ms double precision not null,
    body_key text not null,
    body_start bigint not null,
    body_end bigint not null,
    created_at timestamptz not null default now(),
    primary key (run_id, rollout_id)
  )`,
  `create table workers (
    instance text primary key,
    name text not null,
    first_seen_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now()
  )`,
  `create index run_rollouts_order on run_rollouts (run_id, number)`,
  `create index run_rollouts_step on run_rollouts (run_id, phase, step)`,
];

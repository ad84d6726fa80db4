import { sql, type Kysely } from "kysely";

/** People, their browser sessions and passwords (all four in the auth library's layout), and their bearer tokens. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}

const STATEMENTS = [
  `create table users (
    id text primary key,
    name text not null,
    email text not null unique,
    email_verified boolean not null default false,
    image text,
    is_owner boolean not null default false,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
  )`,
  `create unique index users_owner on users (is_owner) where is_owner`,
  `create table sessions (
    id text primary key,
    token text not null unique,
    user_id text not null references users (id) on delete cascade,
    expires_at timestamptz not null,
    ip_address text,
    user_agent text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
  )`,
  `create index sessions_user on sessions (user_id)`,
  `create table credentials (
    id text primary key,
    account_id text not null,
    provider_id text not null,
    user_id text not null references users (id) on delete cascade,
    access_token text,
    refresh_token text,
    id_token text,
    access_token_expires_at timestamptz,
    refresh_token_expires_at timestamptz,
    scope text,
    password text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
  )`,
  `create index credentials_user on credentials (user_id)`,
  `create table verifications (
    id text primary key,
    identifier text not null,
    value text not null,
    expires_at timestamptz not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
  )`,
  `create index verifications_identifier on verifications (identifier)`,
  `create table tokens (
    id text primary key,
    user_id text not null references users (id) on delete cascade,
    kind text not null,
    name text not null,
    token_hash text not null unique,
    prefix text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    last_used_at timestamptz,
    revoked_at timestamptz
  )`,
  `create index tokens_user on tokens (user_id)`,
  `create table device_grants (
    id text primary key,
    device_code_hash text not null unique,
    user_code text not null unique,
    device_name text not null,
    status text not null default 'pending',
    user_id text references users (id) on delete cascade,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    last_polled_at timestamptz,
    interval_seconds integer not null default 5
  )`,
];

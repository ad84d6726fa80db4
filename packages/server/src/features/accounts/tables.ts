import type { Generated } from "kysely";
import type { CreatedAt, Timestamp } from "../../database/columns.ts";

/** Written by the auth library only: read them, never write them. */
interface UsersTable {
  id: string;
  name: string;
  email: string;
  email_verified: boolean;
  /** The one who started the server. */
  is_owner: Generated<boolean>;
  image: string | null;
  created_at: CreatedAt;
  updated_at: CreatedAt;
}

/** What a bearer token was minted for. Those of a `trainer` open the Tinker wire, and nothing else. */
export type TokenKind = "device" | "personal" | "local" | "trainer";

interface TokensTable {
  id: string;
  user_id: string;
  kind: TokenKind;
  name: string;
  /** SHA-256 of the token in hex. The token itself is shown once and never stored. */
  token_hash: string;
  /** The first characters, by which its owner recognises it. */
  prefix: string;
  created_at: CreatedAt;
  expires_at: Timestamp;
  last_used_at: Date | null;
  revoked_at: Date | null;
}

interface DeviceGrantsTable {
  id: string;
  /** SHA-256 of the device code in hex. */
  device_code_hash: string;
  user_code: string;
  device_name: string;
  status: "pending" | "approved" | "denied" | "redeemed";
  user_id: string | null;
  created_at: CreatedAt;
  expires_at: Timestamp;
  last_polled_at: Date | null;
  interval_seconds: Generated<number>;
}

export interface AccountTables {
  users: UsersTable;
  tokens: TokensTable;
  device_grants: DeviceGrantsTable;
}

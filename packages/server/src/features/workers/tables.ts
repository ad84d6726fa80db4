import type { CreatedAt } from "../../database/columns.ts";

/** Bearers of workers beside the secret in the server's data folder. */
interface WorkerTokensTable {
  id: string;
  name: string;
  token_hash: string;
  /** The beginning of the token, to tell one from another. */
  prefix: string;
  created_by: string;
  created_at: CreatedAt;
  last_used_at: Date | null;
  revoked_at: Date | null;
}

export interface WorkerTables {
  worker_tokens: WorkerTokensTable;
}

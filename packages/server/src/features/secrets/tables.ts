import type { CreatedAt } from "../../database/columns.ts";

interface SecretsTable {
  id: string;
  workspace_id: string;
  /** Whose personal secret it is; null for one of the workspace. */
  user_id: string | null;
  name: string;
  /** The encrypted value; see `seal.ts`. */
  sealed: string;
  created_by: string | null;
  updated_by: string | null;
  created_at: CreatedAt;
  updated_at: CreatedAt;
}

export interface SecretTables {
  secrets: SecretsTable;
}

import type { AccountTables } from "../features/accounts/tables.ts";
import type { DatasetTables } from "../features/datasets/tables.ts";
import type { LogTables } from "../features/logs/tables.ts";
import type { ModelTables } from "../features/models/tables.ts";
import type { RunTables } from "../features/runs/tables.ts";
import type { ShareTables } from "../features/shares/tables.ts";
import type { WorkerTables } from "../features/workers/tables.ts";
import type { SecretTables } from "../features/secrets/tables.ts";
import type { WorkspaceTables } from "../features/workspaces/tables.ts";
import type { DataFolderTables } from "./bound-folder.ts";

/**
 * Every table of the platform by its SQL name. A feature declares its own tables in `features/<noun>/tables.ts` and
 * adds the interface here. The queue's tables are not here: they belong to pg-boss, in their own schema.
 */
export interface Tables
  extends
    DataFolderTables,
    AccountTables,
    WorkspaceTables,
    DatasetTables,
    LogTables,
    SecretTables,
    ModelTables,
    RunTables,
    ShareTables,
    WorkerTables {}

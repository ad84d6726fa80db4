import type { ShareTask } from "@osmosis/protocol";
import type { Generated } from "kysely";
import type { CreatedAt, Json } from "../../database/columns.ts";
import type { StoredFile } from "../models/tables.ts";

/** Rollouts of a run that another worker than its holder may run. */
interface RunSharesTable {
  id: string;
  run_id: string;
  /** The order of publishing. */
  number: Generated<number>;
  /** The run's lease that it was published under: it ends with it. */
  holder_token: string;
  phase: "eval" | "train" | "validation";
  step: number;
  /** What is not recorded yet. */
  tasks: Json<readonly ShareTask[]>;
  /** The holder runs it itself. */
  withdrawn: Generated<boolean>;
  worker: string | null;
  worker_instance: string | null;
  lease_token: string | null;
  lease_expires_at: Date | null;
  /** How often it was handed out. */
  attempt: Generated<number>;
  created_at: CreatedAt;
}

/** The newest weights of a run whose rollouts are shared. */
interface RunWeightsTable {
  run_id: string;
  version: number;
  method: "lora" | "full";
  files: Json<readonly StoredFile[]>;
}

export interface ShareTables {
  run_shares: RunSharesTable;
  run_weights: RunWeightsTable;
}

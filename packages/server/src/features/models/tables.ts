import type { Generated } from "kysely";
import type { CreatedAt, Json } from "../../database/columns.ts";

/** A file of a model and the blob that holds it. */
export interface StoredFile {
  name: string;
  key: string;
  size_bytes: number;
  /** In hex. */
  sha256: string;
}

interface BaseModelsTable {
  id: string;
  /** `owner/name`. */
  name: string;
  parameters: number;
  files: Json<readonly (StoredFile & { modified_ms: number })[]>;
  /** The user who brought it; null for a model that lies in a folder of the server. */
  imported_by: string | null;
  /** False when its folder is gone: nothing new begins with it. */
  is_available: boolean;
  created_at: CreatedAt;
  updated_at: CreatedAt;
}

/** A checkpoint of a training run. */
interface TrainedModelsTable {
  id: string;
  workspace_id: string;
  run_id: string;
  run_name: string;
  name: string;
  base_model: string;
  /** What the run began with. */
  base_files: Json<readonly StoredFile[]>;
  /** `lora`: the files are an adapter on top of the base files; `full`: they are a whole model. */
  method: "lora" | "full";
  step: number;
  /** Validation reward if the step was validated, else the mean training reward. */
  reward: number | null;
  validation_reward: number | null;
  /** Of its run: highest validation reward, else highest training reward; of equals the earlier. */
  is_best: Generated<boolean>;
  is_last: Generated<boolean>;
  /** When `keep_checkpoints` removed the files; `files` is empty then. */
  files_removed_at: Date | null;
  size_bytes: number;
  files: Json<readonly StoredFile[]>;
  created_at: CreatedAt;
}

export interface ModelTables {
  base_models: BaseModelsTable;
  trained_models: TrainedModelsTable;
}

import type { Json, CreatedAt } from "../../database/columns.ts";
import type { DatasetFormat } from "@osmosis/controller";

interface DatasetsTable {
  id: string;
  workspace_id: string;
  /** Unique in the workspace. */
  name: string;
  created_at: CreatedAt;
}

export type DatasetVersionStatus = "uploading" | "processing" | "uploaded" | "error" | "cancelled";

/** One upload. Runs hold on to the version that they began with. */
interface DatasetVersionsTable {
  id: string;
  dataset_id: string;
  /** From 1. The newest that was not cancelled is what the data set shows. */
  number: number;
  status: DatasetVersionStatus;
  format: DatasetFormat;
  size_bytes: number;
  /** Bytes of each part but the last of an upload in parts; null for an upload in one piece. */
  part_size: number | null;
  row_count: number | null;
  preview: Json<readonly Readonly<Record<string, unknown>>[] | null> | null;
  error: string | null;
  created_by: string | null;
  created_at: CreatedAt;
  updated_at: CreatedAt;
}

export interface DatasetTables {
  datasets: DatasetsTable;
  dataset_versions: DatasetVersionsTable;
}

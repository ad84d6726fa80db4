import type { LogLevel } from "@osmosis/protocol";
import type { Generated } from "kysely";
import type { Json, Timestamp } from "../../database/columns.ts";

/** A line of the log of a run or of a data set. */
interface LogLinesTable {
  id: Generated<number>;
  /** Id of the run or data set. */
  subject_id: string;
  timestamp: Timestamp;
  level: LogLevel;
  step: string;
  message: string;
  details: Json<Record<string, unknown> | null>;
}

export interface LogTables {
  log_lines: LogLinesTable;
}

import type { Kysely } from "kysely";
import * as accounts from "./0001-accounts.ts";
import * as workspaces from "./0002-workspaces.ts";
import * as datasets from "./0010-datasets.ts";
import * as secrets from "./0011-secrets.ts";
import * as models from "./0012-models.ts";
import * as runs from "./0013-runs.ts";
import * as importedModels from "./0014-imported-models.ts";
import * as replays from "./0020-replays.ts";
import * as keptCheckpoints from "./0021-kept-checkpoints.ts";
import * as teachers from "./0022-teachers.ts";
import * as shares from "./0030-shares.ts";
import * as rolloutOrder from "./0031-rollout-order.ts";
import * as rolloutMetrics from "./0032-rollout-metrics.ts";
import * as dataFolder from "./0033-data-folder.ts";
import * as validatedSteps from "./0034-validated-steps.ts";

/** A step of the schema. It sees the database untyped: types describe the newest schema, a step an old one. */
export interface Migration {
  up(db: Kysely<unknown>): Promise<void>;
}

/** In the order of their names. Append only: a step that was released is never edited, renamed or removed. */
export const MIGRATIONS: Readonly<Record<string, Migration>> = {
  "0001-accounts": accounts,
  "0002-workspaces": workspaces,
  "0010-datasets": datasets,
  "0011-secrets": secrets,
  "0012-models": models,
  "0013-runs": runs,
  "0014-imported-models": importedModels,
  "0020-replays": replays,
  "0021-kept-checkpoints": keptCheckpoints,
  "0022-teachers": teachers,
  "0030-shares": shares,
  "0031-rollout-order": rolloutOrder,
  "0032-rollout-metrics": rolloutMetrics,
  "0033-data-folder": dataFolder,
  "0034-validated-steps": validatedSteps,
};

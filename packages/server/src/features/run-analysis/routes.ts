import { diagnose } from "@osmosis/controller";
import {
  EXPORT_ROWS_HEADER,
  ExportQuery,
  MOST_COMPARED,
  OsmosisError,
  RUN_LEASE_HEADER,
  analysisRoutes as routes,
  committedStepsRoute,
  evalComparisonRoute,
  exportStreams as streams,
} from "@osmosis/protocol";
import type { Context, Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { parseQuery } from "../../http/parse.ts";
import { requireUser } from "../../http/require-user.ts";
import { requireWorkspace } from "../../http/require-workspace.ts";
import { createRouter, honoPath } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import { getRun } from "../runs/run-rows.ts";
import type { RunKind } from "../runs/tables.ts";
import { readLeasedRun } from "../worker-api/lease.ts";
import { compareEvals } from "./compare-evals.ts";
import { compareRuns } from "./compare-runs.ts";
import { exportRun } from "./export-run.ts";
import { runHistory } from "./run-history.ts";

/** Looking at runs as a whole: the doctor, comparisons, exports. */
export function runAnalysisRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  const { app } = router;
  const { db, url, now } = platform;

  router.on(routes.doctor, async ({ workspace, params }) => {
    const row = await getRun(db, workspace, { kind: "training", nameOrId: params.name });
    const at = now();
    const history = await runHistory(db, row, { now: at, leaseSeconds: platform.config.leaseSeconds });
    return {
      training_run_id: row.id,
      name: row.name,
      status: history.status,
      checked_at: at.toISOString(),
      latest_step: row.committed_steps,
      ...diagnose(history),
    };
  });

  router.on(routes.compare, async ({ workspace, query }) => {
    const rows = [];
    for (const nameOrId of namesOf(query.runs)) {
      rows.push(await getRun(db, workspace, { kind: "training", nameOrId, command: "compare" }));
    }
    refuseTwice(rows);
    return await compareRuns(db, rows, { url, workspace, now: now() });
  });

  router.on(evalComparisonRoute, async ({ workspace, query }) => {
    const wanted = { kind: "evaluation", command: "compare" } as const;
    const a = await getRun(db, workspace, { ...wanted, nameOrId: query.a });
    const b = await getRun(db, workspace, { ...wanted, nameOrId: query.b });
    refuseTwice([a, b]);
    return await compareEvals(db, { a, b }, { url, workspace });
  });

  router.on(committedStepsRoute, async ({ c, params, query }) => {
    const lease = { runId: params.run_id, token: c.req.header(RUN_LEASE_HEADER) ?? "" };
    const { id } = await readLeasedRun(db, lease, now());
    const steps = await db
      .selectFrom("run_steps")
      .select(["step", "metrics", "created_at"])
      .where("run_id", "=", id)
      .where("step", ">", query.after)
      .orderBy("step")
      .execute();
    return {
      steps: steps.map(({ step, metrics, created_at }) => ({
        step,
        metrics: { ...metrics },
        committed_at: created_at.toISOString(),
      })),
    };
  });

  const member = [requireUser(platform), requireWorkspace(platform)] as const;
  for (const path of [streams.training, streams.trainingFile]) {
    app.get(honoPath(path), ...member, (c) => answerExport(platform, c, "training"));
  }
  for (const path of [streams.evaluation, streams.evaluationFile]) {
    app.get(honoPath(path), ...member, (c) => answerExport(platform, c, "evaluation"));
  }
  return app;
}

async function answerExport(platform: Platform, c: Context<AppEnv>, kind: RunKind): Promise<Response> {
  const query = parseQuery(c, ExportQuery);
  const row = await getRun(platform.db, c.get("workspace"), { kind, nameOrId: c.req.param("name") ?? "" });
  const { rows, body } = await exportRun(platform, row, query);
  return c.body(body, 200, {
    "content-type": query.format === "csv" ? "text/csv; charset=utf-8" : "application/x-ndjson",
    // A run's name is letters, digits and hyphens.
    "content-disposition": `attachment; filename="${row.name}-${query.what}.${query.format}"`,
    [EXPORT_ROWS_HEADER]: String(rows),
  });
}

/** @throws {OsmosisError} VALIDATION when a run is named twice. */
function refuseTwice(rows: readonly { readonly id: string }[]): void {
  if (new Set(rows.map(({ id }) => id)).size === rows.length) return;
  throw new OsmosisError("VALIDATION", "A run cannot be compared with itself.", {
    hint: "Name each run once; a run's id and its name mean the same run.",
  });
}

/** @throws {OsmosisError} VALIDATION unless there are two to {@link MOST_COMPARED}. */
function namesOf(list: string): string[] {
  const names = list
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
  if (names.length >= 2 && names.length <= MOST_COMPARED) return names;
  throw new OsmosisError("VALIDATION", `${names.length} runs cannot be compared.`, {
    hint: `Name 2 to ${MOST_COMPARED} training runs.`,
  });
}

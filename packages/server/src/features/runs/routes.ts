import { evalRoutes, pageOf, trainingRoutes, type EvalResults } from "@osmosis/protocol";
import type { Context, Hono } from "hono";
import type { AppEnv } from "../../http/context.ts";
import { createRouter, type Router } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import type { User } from "../accounts/service.ts";
import { readLog } from "../logs/store.ts";
import type { WorkspaceAccess } from "../workspaces/service.ts";
import { stopRun } from "./lifecycle.ts";
import { resultsOf } from "./results.ts";
import { marksOf } from "../models/service.ts";
import { getRollout, listRollouts } from "./rollouts.ts";
import { serveRunFiles } from "./run-files.ts";
import { getRun, listRuns, type RunRow } from "./run-rows.ts";
import { parseEvaluation, parseTraining, type Submission } from "./submission.ts";
import { checkSubmission, submitRun } from "./submit.ts";
import type { RunKind } from "./tables.ts";
import { trainingMetrics } from "./training-metrics.ts";
import {
  evalDetailView,
  evalMetricsView,
  evalRunView,
  submittedView,
  trainingDetailView,
  trainingRunView,
} from "./views.ts";

/** Submitting, watching and stopping runs. */
export function runRoutes(platform: Platform): Hono<AppEnv> {
  const router = createRouter(platform);
  serveEvaluations(platform, router);
  serveTrainings(platform, router);
  serveRunFiles(platform, router);
  serveRuns(platform, router, "evaluation", evalRoutes);
  serveRuns(platform, router, "training", trainingRoutes);
  return router.app;
}

async function submit(
  platform: Platform,
  { c, user, workspace }: { c: Context<AppEnv>; user: User; workspace: WorkspaceAccess },
  submission: Submission,
) {
  const idempotencyKey = c.req.header("idempotency-key")?.slice(0, 255);
  const { id } = await submitRun(
    { ...platform, bell: platform.runBell },
    { user, workspace, idempotencyKey: idempotencyKey === "" ? undefined : idempotencyKey },
    submission,
  );
  const row = await getRun(platform.db, workspace, { kind: submission.kind, nameOrId: id });
  return submittedView(row, { url: platform.url, workspace });
}

function serveEvaluations(platform: Platform, router: Router): void {
  const { db, url, now } = platform;
  const resultsNow = async (row: RunRow): Promise<EvalResults | null> =>
    row.status === "pending" ? null : (row.results ?? (await resultsOf(db, row.id)));

  router.on(evalRoutes.submit, (call) => submit(platform, call, parseEvaluation(call.body)));
  router.on(evalRoutes.check, (call) => checkSubmission(platform, call, parseEvaluation(call.body)));

  router.on(evalRoutes.list, async ({ workspace, query }) => {
    const { rows, total } = await listRuns(db, workspace.id, { kind: "evaluation", ...query });
    const views = [];
    for (const row of rows) views.push(evalRunView(row, { url, workspace }, await resultsNow(row)));
    return { eval_runs: views, ...pageOf(total, query.offset, rows.length) };
  });

  router.on(evalRoutes.get, async ({ workspace, params }) => {
    const row = await getRun(db, workspace, { kind: "evaluation", nameOrId: params.name });
    return evalDetailView(row, { url, workspace }, await resultsNow(row));
  });

  router.on(evalRoutes.metrics, async ({ workspace, params }) => {
    const row = await getRun(db, workspace, { kind: "evaluation", nameOrId: params.name });
    return evalMetricsView(row, row.results ?? (await resultsOf(db, row.id)), now());
  });
}

function serveTrainings(platform: Platform, router: Router): void {
  const { db, url, now } = platform;

  router.on(trainingRoutes.submit, (call) => submit(platform, call, parseTraining(call.body)));
  router.on(trainingRoutes.check, (call) => checkSubmission(platform, call, parseTraining(call.body)));

  router.on(trainingRoutes.list, async ({ workspace, query }) => {
    const { rows, total } = await listRuns(db, workspace.id, { kind: "training", ...query });
    return {
      training_runs: rows.map((row) => trainingRunView(row, { url, workspace })),
      ...pageOf(total, query.offset, rows.length),
    };
  });

  router.on(trainingRoutes.get, async ({ workspace, params }) => {
    const row = await getRun(db, workspace, { kind: "training", nameOrId: params.name });
    return trainingDetailView(row, { url, workspace });
  });

  router.on(trainingRoutes.metrics, async ({ workspace, params }) => {
    const row = await getRun(db, workspace, { kind: "training", nameOrId: params.name });
    return await trainingMetrics(db, row, now());
  });

  router.on(trainingRoutes.checkpoints, async ({ workspace, params }) => {
    const row = await getRun(db, workspace, { kind: "training", nameOrId: params.name });
    const models = await db
      .selectFrom("trained_models")
      .select(["id", "name", "step", "reward", "validation_reward", "created_at"])
      .select(["is_best", "is_last", "files_removed_at"])
      .where("run_id", "=", row.id)
      .orderBy("step")
      .execute();
    return {
      training_run_id: row.id,
      training_run_name: row.name,
      checkpoints: models.map((model) => ({
        id: model.id,
        checkpoint_name: model.name,
        checkpoint_step: model.step,
        status: model.files_removed_at === null ? ("uploaded" as const) : ("removed" as const),
        marks: marksOf(model),
        reward: model.reward,
        validation_reward: model.validation_reward,
        created_at: model.created_at.toISOString(),
      })),
    };
  });
}

/** What both kinds of runs have. */
function serveRuns(
  platform: Platform,
  router: Router,
  kind: RunKind,
  routes:
    | Pick<typeof evalRoutes, "logs" | "stop" | "rollouts" | "rollout">
    | Pick<typeof trainingRoutes, "logs" | "stop" | "rollouts" | "rollout">,
): void {
  const { db } = platform;

  router.on(routes.logs, async ({ workspace, params, query }) => {
    const { id } = await getRun(db, workspace, { kind, nameOrId: params.name });
    return await readLog(db, id, query);
  });

  router.on(routes.stop, async ({ workspace, params }) => {
    const { id } = await getRun(db, workspace, { kind, nameOrId: params.name });
    return { id, status: await stopRun(platform, id) };
  });

  router.on(routes.rollouts, async ({ workspace, params, query }) => {
    const { id } = await getRun(db, workspace, { kind, nameOrId: params.name });
    const { items, total } = await listRollouts(db, id, query);
    return { rollouts: items, ...pageOf(total, query.offset, items.length) };
  });

  router.on(routes.rollout, async ({ workspace, params }) => {
    const { id } = await getRun(db, workspace, { kind, nameOrId: params.name });
    return await getRollout(platform, id, params.rollout_id);
  });
}

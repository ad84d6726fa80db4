import { randomUUID } from "node:crypto";
import { REFERENCE_FILE } from "@osmosis/engine";
import {
  AcceptedTrainingConfig,
  OsmosisError,
  ReplayStatus,
  TrainingRunConfig,
  issuesOf,
  weightsAreHere,
  type Issue,
  type Replay,
  type ReplayedStep,
} from "@osmosis/protocol";
import type { Kysely } from "kysely";
import { jsonb } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import type { Bell } from "../../queue/bell.ts";
import { REPLAY_QUEUE } from "../../queue/job-types.ts";
import type { User } from "../accounts/service.ts";
import { isFinal, stopRun } from "../runs/lifecycle.ts";
import { getRun, type RunRow } from "../runs/run-rows.ts";
import type { ReplayOrder } from "../runs/tables.ts";
import type { WorkspaceAccess } from "../workspaces/service.ts";

type Parts = Pick<Platform, "db" | "queue" | "blobs" | "now"> & { readonly bell: Bell };

/**
 * Queues a replay of a training run up to a step. It is a row of `runs` like its run's, so that it is claimed, held and
 * ended as every run is.
 *
 * @throws {OsmosisError} NOT_FOUND; VALIDATION for steps that are not committed, settings that do not exist, and runs on
 * another trainer than this platform's own.
 */
export async function startReplay(
  parts: Parts,
  { user, workspace }: { readonly user: User; readonly workspace: WorkspaceAccess },
  request: {
    readonly run: string;
    readonly step?: number | undefined;
    readonly set?: Readonly<Record<string, unknown>> | undefined;
  },
): Promise<Replay> {
  const { db, queue, now } = parts;
  const run = await getRun(db, workspace, { kind: "training", nameOrId: request.run });
  const order = orderOf(run, request);
  await refuseOtherTrainer(db, run);
  const id = randomUUID();
  const queued = await db.transaction().execute(async (transaction) => {
    // Of two that ask for the same at once, the second finds the replay of the first.
    await transaction.selectFrom("runs").select("id").where("id", "=", run.id).forUpdate().execute();
    const others = await transaction
      .selectFrom("runs")
      .select(["id", "replay"])
      .where("replay_of", "=", run.id)
      .where("status", "in", ["pending", "running"])
      .execute();
    const same = others.find(
      ({ replay }) => replay?.step === order.step && settingsText(replay.set) === settingsText(order.set),
    );
    if (same !== undefined) return same.id;
    await transaction
      .insertInto("runs")
      .values({
        id,
        workspace_id: run.workspace_id,
        kind: "replay",
        name: `${run.name}-replay-${id.slice(0, 8)}`,
        status: "pending",
        error: null,
        created_by: user.id,
        created_at: now(),
        started_at: null,
        completed_at: null,
        rollout_id: run.rollout_id,
        rollout: run.rollout,
        entrypoint: run.entrypoint,
        branch: run.branch,
        commit_sha: run.commit_sha,
        dataset_id: run.dataset_id,
        dataset_version_id: run.dataset_version_id,
        dataset_name: run.dataset_name,
        dataset_rows: run.dataset_rows,
        row_indexes: null,
        model: jsonb(run.model),
        teacher: run.teacher === null ? null : jsonb(run.teacher),
        config: jsonb(here(run.config)),
        // No code of the workspace runs, so nothing needs a secret.
        secret_sources: jsonb({}),
        total_steps: run.total_steps,
        state_files: jsonb([]),
        results: null,
        replay_of: run.id,
        replay: jsonb<ReplayOrder>(order),
        idempotency_key: null,
        request_sha256: null,
        worker: null,
        worker_instance: null,
        lease_token: null,
        lease_expires_at: null,
      })
      .execute();
    await queue.enqueue(REPLAY_QUEUE, { run_id: id }, { id, transaction });
    return id;
  });
  parts.bell.ring();
  return await getReplay(parts.db, workspace, { run: run.name, replayId: queued });
}

/** @throws {OsmosisError} NOT_FOUND. */
export async function getReplay(
  db: Kysely<Tables>,
  workspace: WorkspaceAccess,
  { run: nameOrId, replayId }: { readonly run: string; readonly replayId: string },
): Promise<Replay> {
  const run = await getRun(db, workspace, { kind: "training", nameOrId });
  const replay = await db
    .selectFrom("runs")
    .selectAll()
    .where("replay_of", "=", run.id)
    .where("id", "=", replayId)
    .executeTakeFirst();
  if (replay?.replay == null) {
    throw new OsmosisError("NOT_FOUND", `The run ${run.name} has no replay ${replayId}.`, {
      hint: `Start one with \`osmosis train replay ${run.name} --step N\`.`,
    });
  }
  const order = replay.replay;
  const rows = await db
    .selectFrom("run_steps as again")
    .innerJoin("run_steps as first", "first.step", "again.step")
    .select(["again.step", "again.metrics as replayed", "first.metrics as recorded"])
    .where("again.run_id", "=", replay.id)
    .where("first.run_id", "=", run.id)
    .orderBy("again.step")
    .execute();
  const steps = rows.map((row) => compared(row, order));
  return {
    id: replay.id,
    training_run_name: run.name,
    status: ReplayStatus.parse(replay.status),
    error: replay.error,
    step: order.step,
    from_step: order.from_step,
    current_step: order.from_step === null ? 0 : replay.committed_steps,
    set: { ...order.set },
    equal: replay.status === "finished" ? verdictOf(steps) : null,
    steps,
    created_at: replay.created_at.toISOString(),
    completed_at: replay.completed_at?.toISOString() ?? null,
  };
}

/** @returns its status, or `stopping` while a worker has still to hear of it */
export async function stopReplay(
  parts: Parts,
  workspace: WorkspaceAccess,
  which: { readonly run: string; readonly replayId: string },
): Promise<{ id: string; status: string }> {
  const { id, status } = await getReplay(parts.db, workspace, which);
  return { id, status: isFinal(status) ? status : await stopRun(parts, id) };
}

/** What an update measures. Rollouts and clocks are not repeated, so their metrics are not compared. */
function updateMetrics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([key]) => key.startsWith("train/")));
}

/** One unequal step is enough; without one, a step that was not compared leaves the question open. */
function verdictOf(steps: readonly ReplayedStep[]): boolean | null {
  if (steps.some(({ equal }) => equal === false)) return false;
  return steps.every(({ equal }) => equal === true) ? true : null;
}

/** The database has an order of keys of its own. */
function settingsText(set: Readonly<Record<string, unknown>>): string {
  return JSON.stringify(Object.entries(set).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

function compared(
  row: {
    readonly step: number;
    readonly replayed: Readonly<Record<string, number>>;
    readonly recorded: Readonly<Record<string, number>>;
  },
  order: ReplayOrder,
): ReplayedStep {
  const recorded = updateMetrics(row.recorded);
  const replayed = updateMetrics(row.replayed);
  const keys = new Set([...Object.keys(recorded), ...Object.keys(replayed)]);
  const isOther = row.step === order.step && order.last_config !== null;
  return {
    step: row.step,
    recorded,
    replayed,
    equal: isOther ? null : [...keys].every((key) => replayed[key] === recorded[key]),
  };
}

function orderOf(
  run: RunRow,
  request: {
    readonly step?: number | undefined;
    readonly set?: Readonly<Record<string, unknown>> | undefined;
  },
): ReplayOrder {
  const { config } = run;
  if (!("training" in config))
    throw new Error(`the training run ${run.id} has the configuration of another kind`);
  if (run.committed_steps === 0) {
    throw new OsmosisError("VALIDATION", `The run ${run.name} has no committed step yet.`, {
      hint: "Wait for its first one.",
    });
  }
  const step = request.step ?? run.committed_steps;
  if (step > run.committed_steps) {
    throw new OsmosisError(
      "VALIDATION",
      `The run ${run.name} has no step ${step}: its last committed one is ${run.committed_steps}.`,
      { hint: `Choose a step from 1 to ${run.committed_steps}.` },
    );
  }
  const set = request.set ?? {};
  return {
    step,
    from_step: null,
    set,
    last_config: Object.keys(set).length === 0 ? null : here(withSettings(config, set)),
  };
}

/** With the engine of the worker, whatever trainer the platform has by now. */
function here<Config extends RunRow["config"]>(config: Config): Config {
  return "training" in config ? { ...config, advanced: { ...config.advanced, trainer: "embedded" } } : config;
}

/**
 * A trainer by URL keeps the weights, and leaves references to them where files would be.
 *
 * @throws {OsmosisError} VALIDATION.
 */
async function refuseOtherTrainer(db: Kysely<Tables>, { id, name, config, model }: RunRow): Promise<void> {
  const trainer = "training" in config ? config.advanced.trainer : undefined;
  const uploads = await db.selectFrom("run_files").select("path").where("run_id", "=", id).execute();
  const models = await db.selectFrom("trained_models").select("files").where("run_id", "=", id).execute();
  const names = [
    ...uploads.map(({ path }) => path.slice(path.lastIndexOf("/") + 1)),
    ...models.flatMap((model) => model.files.map((file) => file.name)),
  ];
  const isElsewhere = trainer !== undefined && trainer !== "embedded";
  const isHere = model.type === "local" && weightsAreHere(model);
  if (!isElsewhere && isHere && !names.includes(REFERENCE_FILE)) return;
  throw new OsmosisError(
    "VALIDATION",
    `The run ${name} was trained ${isElsewhere ? `at ${trainer}` : "by a trainer by URL"}.`,
    {
      hint: "Only what the engine of a worker trained can be replayed: another trainer need not repeat itself.",
    },
  );
}

/** Settings of the update alone: what was sampled, and by what weights, is what it was. */
const SETTABLE: Readonly<Record<string, readonly string[]>> = {
  training: ["lr"],
  advanced: [
    "advantage",
    "loss",
    "clip_low",
    "clip_high",
    "aggregation",
    "correction",
    "correction_cap",
    "kl_estimator",
    "reward_coef",
    "teacher_coef",
    "entropy_coef",
    "overlong_cache",
    "grad_clip_norm",
    "weight_decay",
  ],
};

function withSettings(config: TrainingRunConfig, set: Readonly<Record<string, unknown>>): TrainingRunConfig {
  const changed = structuredClone({ training: config.training, advanced: config.advanced }) as Record<
    string,
    Record<string, unknown>
  >;
  // The bounds of another loss have another meaning; its own defaults take their place.
  if ("advanced.loss" in set && set["advanced.loss"] !== config.advanced.loss) {
    delete changed["advanced"]?.["clip_low"];
    delete changed["advanced"]?.["clip_high"];
  }
  for (const [place, value] of Object.entries(set)) {
    const [table = "", key = "", ...rest] = place.split(".");
    const keys = Object.hasOwn(SETTABLE, table) ? SETTABLE[table] : undefined;
    if (keys?.includes(key) !== true || rest.length > 0) {
      throw new OsmosisError("VALIDATION", `${place} cannot be set for a replay.`, {
        hint: `These can: ${Object.entries(SETTABLE)
          .flatMap(([name, keys]) => keys.map((one) => `${name}.${one}`))
          .join(", ")}.`,
      });
    }
    const settings = changed[table];
    if (settings !== undefined) settings[key] = value;
  }
  // What today's rules refuse of a run of an earlier release is no fault of the settings.
  const former = new Set(faultsOf(config).map(({ key, message }) => `${key} ${message}`));
  const repeated = { ...config, ...changed };
  const first = faultsOf(repeated).find(
    ({ key, message }) => Object.hasOwn(set, key) || !former.has(`${key} ${message}`),
  );
  if (first === undefined) return AcceptedTrainingConfig.parse(repeated);
  throw new OsmosisError("VALIDATION", `The setting cannot be used: ${first.key} ${first.message}.`, {
    hint: "The settings are those of [training] and [advanced] in a run's configuration.",
  });
}

function faultsOf(config: object): Issue[] {
  const parsed = TrainingRunConfig.safeParse(config);
  return parsed.success ? [] : issuesOf(parsed.error);
}

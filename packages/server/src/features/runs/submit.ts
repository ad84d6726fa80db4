import { randomUUID } from "node:crypto";
import { runSize, stepsOf } from "@osmosis/controller";
import { OsmosisError, closest, type Checked, type Issue } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import { jsonb } from "../../database/columns.ts";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import type { Bell } from "../../queue/bell.ts";
import { RUN_QUEUE } from "../../queue/job-types.ts";
import type { User } from "../accounts/service.ts";
import type { UsableDataset } from "../datasets/service.ts";
import type { RunModel } from "../models/service.ts";
import type { SecretSource } from "../secrets/service.ts";
import type { WorkspaceAccess } from "../workspaces/service.ts";
import { selectRows } from "./row-selection.ts";
import { randomRunName } from "./run-name.ts";
import { sealRunSecret } from "./run-secrets.ts";
import { invalidConfig, type Submission } from "./submission.ts";
import { trainerIssues } from "./trainer-issues.ts";

/** What a submission names, found. */
type Resolved = {
  readonly commitSha: string;
  readonly rolloutId: string;
  readonly dataset: UsableDataset;
  readonly model: RunModel;
  readonly teacher: RunModel | undefined;
  readonly sources: Readonly<Record<string, SecretSource>>;
};

type Parts = Pick<
  Platform,
  "db" | "config" | "queue" | "now" | "url" | "keys" | "repositories" | "datasets" | "models" | "secrets"
> & {
  readonly bell: Bell;
};

/**
 * Makes a run of a submission and queues it: both or neither. The commit, the version of the data set and the files of
 * the model are fixed here; what is pushed or uploaded later does not reach the run.
 *
 * @throws {OsmosisError} VALIDATION with issues; NOT_FOUND for code that was not pushed and for missing secrets;
 * CONFLICT when the idempotency key was used for another request.
 */
export async function submitRun(
  parts: Parts,
  caller: {
    readonly user: User;
    readonly workspace: WorkspaceAccess;
    readonly idempotencyKey: string | undefined;
  },
  submission: Submission,
): Promise<{ id: string }> {
  const earlier = await findEarlier(parts, caller, submission);
  if (earlier !== undefined) return earlier;
  const resolved = await resolve(parts, caller, submission);
  for (;;) {
    const id = await insert(parts, caller, submission, resolved);
    if (id !== undefined) {
      parts.bell.ring();
      return { id };
    }
    // The name was taken, or the same request came twice at once.
    const twin = await findEarlier(parts, caller, submission);
    if (twin !== undefined) return twin;
  }
}

type Caller = Parameters<typeof submitRun>[1];

/**
 * Finds everything that a submission names, as submitting does, and starts nothing.
 *
 * @throws {OsmosisError} what `submitRun` throws for it.
 */
export async function checkSubmission(
  parts: Omit<Parts, "bell">,
  caller: Pick<Caller, "user" | "workspace">,
  submission: Submission,
): Promise<Checked> {
  const { commitSha, dataset } = await resolve(parts, caller, submission);
  const found = { commit_sha: commitSha, dataset_rows: dataset.rowCount };
  if (submission.kind === "evaluation") {
    const { evaluation, advanced } = submission.config;
    const rows = selectRows(dataset.rowCount, { limit: evaluation.limit, seed: advanced.seed }).length;
    const rollouts = rows * evaluation.n;
    return { ...found, rows, steps: null, rollouts, rollouts_at_most: rollouts, validation_rollouts: 0 };
  }
  const size = runSize(submission.config, dataset.rowCount);
  return {
    ...found,
    rows: dataset.rowCount - submission.config.advanced.holdout_rows,
    steps: size.steps,
    rollouts: size.rollouts,
    rollouts_at_most: size.rolloutsAtMost,
    validation_rollouts: size.validationRollouts,
  };
}

async function findEarlier(
  { db }: Parts,
  { workspace, idempotencyKey }: Caller,
  { kind, requestSha256 }: Submission,
): Promise<{ id: string } | undefined> {
  if (idempotencyKey === undefined) return undefined;
  const run = await db
    .selectFrom("runs")
    .select(["id", "name", "request_sha256"])
    .where("workspace_id", "=", workspace.id)
    .where("kind", "=", kind)
    .where("idempotency_key", "=", idempotencyKey)
    .executeTakeFirst();
  if (run === undefined || run.request_sha256 === requestSha256) return run;
  throw new OsmosisError(
    "CONFLICT",
    `The Idempotency-Key was used for the run ${run.name} with another request.`,
    {
      hint: "Use a key of its own for each request.",
    },
  );
}

async function resolve(
  parts: Omit<Parts, "bell">,
  { user, workspace }: Pick<Caller, "user" | "workspace">,
  submission: Submission,
): Promise<Resolved> {
  const { experiment, env, secrets } = submission.config;
  const commitSha = await parts.repositories.resolveRef(workspace.id, experiment);
  const issues: Issue[] = await codeIssues(parts, workspace, { ...experiment, commitSha });

  const dataset = await parts.datasets.usable(workspace.id, experiment.dataset);
  if ("problem" in dataset) {
    const correction = closest(experiment.dataset, dataset.names);
    issues.push({
      key: "experiment.dataset",
      message: dataset.problem,
      ...(correction === undefined ? {} : { key_correction: correction }),
    });
  }
  const model = await parts.models.resolve(workspace.id, experiment.model_path, {
    allowProviders: submission.kind === "evaluation",
    env,
  });
  if ("problem" in model) {
    issues.push({
      key: "experiment.model_path",
      message: model.problem,
      ...(model.correction === undefined ? {} : { key_correction: model.correction }),
    });
  } else if (model.model.type === "provider") {
    const { api_key_name: name } = model.model;
    if (!secrets.required.includes(name) && env[name] === undefined) {
      issues.push({
        key: "secrets.required",
        message: `must name ${name}, the key for ${experiment.model_path}`,
      });
    }
  }
  const teacher = await teacherOf(parts, workspace, submission);
  if (teacher !== undefined && "problem" in teacher) {
    issues.push({
      key: "advanced.teacher_model",
      message: teacher.problem,
      ...(teacher.correction === undefined ? {} : { key_correction: teacher.correction }),
    });
  }
  if (
    submission.kind === "training" &&
    "dataset" in dataset &&
    stepsOf(submission.config, dataset.dataset.rowCount) === 0
  ) {
    const { holdout_rows: heldOut } = submission.config.advanced;
    issues.push({
      key: "advanced.holdout_rows",
      message: `${heldOut} leaves no row to train on: the data set has ${dataset.dataset.rowCount}`,
    });
  }
  const taught = teacher !== undefined && "model" in teacher ? teacher.model : undefined;
  if ("model" in model) {
    issues.push(...trainerIssues(parts.config, submission, { model: model.model, teacher: taught }));
  }
  if (issues.length > 0 || "problem" in dataset || "problem" in model) throw invalidConfig(issues);
  const sources = await secretSources(parts, { user, workspace }, submission);
  const rollout = await parts.db
    .selectFrom("rollouts")
    .select("id")
    .where("workspace_id", "=", workspace.id)
    .where("name", "=", experiment.rollout)
    .orderBy((by) => by("branch", "=", experiment.branch ?? workspace.defaultBranch), "desc")
    .executeTakeFirst();
  return {
    commitSha,
    rolloutId: rollout?.id ?? "",
    dataset: dataset.dataset,
    model: model.model,
    teacher: taught,
    sources,
  };
}

/** The model of `teacher_model`; undefined where there is none. */
async function teacherOf(
  { models }: Pick<Parts, "models">,
  workspace: WorkspaceAccess,
  { kind, config }: Submission,
) {
  if (kind !== "training" || config.advanced.teacher_model === undefined) return undefined;
  const found = await models.resolve(workspace.id, config.advanced.teacher_model, {
    allowProviders: true,
    env: config.env,
  });
  if ("problem" in found || found.model.type === "local") return found;
  return {
    problem:
      `${found.model.name} is a model of a hosted provider, which tells no log probabilities of given tokens; ` +
      "name a base model or a trained one",
  };
}

/** The rollout and its entrypoint must be in the commit: code comes from what was pushed, never from the caller's disk. */
async function codeIssues(
  { repositories }: Pick<Parts, "repositories">,
  workspace: WorkspaceAccess,
  { rollout, entrypoint, commitSha }: { rollout: string; entrypoint: string; commitSha: string },
): Promise<Issue[]> {
  const commit = commitSha.slice(0, 7);
  const names = await repositories.listFolders(workspace.id, commitSha, "rollouts");
  if (!names.includes(rollout)) {
    const correction = closest(rollout, names);
    return [
      {
        key: "experiment.rollout",
        message: `there is no folder rollouts/${rollout} in the pushed commit ${commit}; commit it and push`,
        ...(correction === undefined ? {} : { key_correction: correction }),
      },
    ];
  }
  const path = `rollouts/${rollout}/${entrypoint}`;
  if ((await repositories.readFile(workspace.id, commitSha, path)) !== undefined) return [];
  return [
    {
      key: "experiment.entrypoint",
      message: `there is no file ${path} in the pushed commit ${commit}; commit it and push`,
    },
  ];
}

async function secretSources(
  { secrets, url }: Pick<Parts, "secrets" | "url">,
  { user, workspace }: Pick<Caller, "user" | "workspace">,
  { config, provided }: Submission,
): Promise<Record<string, SecretSource>> {
  const names = config.secrets.required;
  const stored = await secrets.sourcesOf({ workspaceId: workspace.id, userId: user.id }, names);
  const sources: Record<string, SecretSource> = {};
  const missing: string[] = [];
  for (const name of names) {
    const source = Object.hasOwn(provided, name) ? "run" : stored.get(name);
    if (source === undefined) missing.push(name);
    else sources[name] = source;
  }
  if (missing.length === 0) return sources;
  throw new OsmosisError("NOT_FOUND", `Secret(s) not found: ${missing.join(", ")}`, {
    hint: `Set each with \`osmosis secret set NAME\`, or give it for this run only with --secrets-file.`,
    details: { platform_url: `${url}/${workspace.name}/secrets`, missing },
  });
}

/** The id of the new run; undefined when its name or its idempotency key exists. */
async function insert(
  parts: Parts,
  { user, workspace, idempotencyKey }: Caller,
  { kind, config, provided, requestSha256 }: Submission,
  resolved: Resolved,
): Promise<string | undefined> {
  const { db, queue, now } = parts;
  const { commitSha, rolloutId, dataset, model, teacher, sources } = resolved;
  const id = randomUUID();
  return await db.transaction().execute(async (transaction) => {
    await holdModel(transaction, model);
    if (teacher !== undefined) await holdModel(transaction, teacher);
    const inserted = await transaction
      .insertInto("runs")
      .values({
        id,
        workspace_id: workspace.id,
        kind,
        name: randomRunName(),
        status: "pending",
        error: null,
        created_by: user.id,
        created_at: now(),
        started_at: null,
        completed_at: null,
        rollout_id: rolloutId,
        rollout: config.experiment.rollout,
        entrypoint: config.experiment.entrypoint,
        branch:
          config.experiment.branch ??
          (config.experiment.commit_sha === undefined ? workspace.defaultBranch : null),
        commit_sha: commitSha,
        dataset_id: dataset.id,
        dataset_version_id: dataset.versionId,
        dataset_name: dataset.name,
        dataset_rows: dataset.rowCount,
        row_indexes:
          kind === "evaluation"
            ? jsonb(
                selectRows(dataset.rowCount, { limit: config.evaluation.limit, seed: config.advanced.seed }),
              )
            : null,
        model: jsonb(model),
        teacher: teacher === undefined ? null : jsonb(teacher),
        config: jsonb(config),
        secret_sources: jsonb(sources),
        total_steps: kind === "training" ? stepsOf(config, dataset.rowCount) : null,
        state_files: jsonb([]),
        results: null,
        replay_of: null,
        replay: null,
        idempotency_key: idempotencyKey ?? null,
        request_sha256: idempotencyKey === undefined ? null : requestSha256,
        worker: null,
        worker_instance: null,
        lease_token: null,
        lease_expires_at: null,
      })
      .onConflict((conflict) => conflict.doNothing())
      .returning("id")
      .executeTakeFirst();
    if (inserted === undefined) return undefined;
    for (const [name, value] of Object.entries(provided)) {
      await transaction
        .insertInto("run_secrets")
        .values({ run_id: id, name, sealed: sealRunSecret(parts.keys, { runId: id, name }, value) })
        .execute();
    }
    await queue.enqueue(RUN_QUEUE, { run_id: id }, { id, transaction });
    return id;
  });
}

/**
 * Locks a checkpoint until the run that needs it is there, so that its files are not removed in between.
 *
 * @throws {OsmosisError} CONFLICT when they have just been.
 */
async function holdModel(transaction: Kysely<Tables>, model: RunModel): Promise<void> {
  if (model.type !== "local") return;
  const trained = await transaction
    .selectFrom("trained_models")
    .select(["files", "files_removed_at"])
    .where("id", "=", model.id)
    .forShare()
    .executeTakeFirst();
  if (trained === undefined) return;
  const keys = new Set([...model.base_files, ...model.adapter_files].map(({ key }) => key));
  if (trained.files_removed_at === null) {
    if (trained.files.every(({ key }) => keys.has(key))) return;
    throw new OsmosisError("CONFLICT", `The run of ${model.name} has just made it again.`, {
      hint: "Submit once more.",
    });
  }
  throw new OsmosisError("CONFLICT", `The files of ${model.name} have just been removed.`, {
    hint: "Choose a checkpoint that is kept; raise [advanced].keep_checkpoints to keep more.",
  });
}

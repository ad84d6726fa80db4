import { pastStepOf } from "@osmosis/controller";
import type { FileRef, Job, ModelAssignment, PastStep } from "@osmosis/protocol";
import type { RunModel } from "../models/service.ts";
import type { StoredFile } from "../models/tables.ts";
import { replayStart } from "../replays/start.ts";
import { openRunSecrets } from "../runs/run-secrets.ts";
import type { ClaimParts } from "./claim.ts";
import type { LeasedRun } from "./lease.ts";

/**
 * What every worker needs to roll out for a run, whether it holds it or helps.
 *
 * @throws {OsmosisError} NOT_FOUND when a secret was deleted since the run was submitted.
 */
export async function workOf(parts: ClaimParts, run: LeasedRun) {
  const secrets = await openRunSecrets(parts, {
    id: run.id,
    workspaceId: run.workspace_id,
    userId: run.created_by,
    sources: run.secret_sources,
  });
  return {
    run_id: run.id,
    run_name: run.name,
    lease_seconds: parts.config.leaseSeconds,
    rollout: run.rollout,
    entrypoint: run.entrypoint,
    commit_sha: run.commit_sha,
    env: { ...run.config.env },
    secrets,
    ...(parts.config.trainer !== undefined && { trainer: parts.config.trainer }),
    model: assignmentOf(parts, run.model),
  };
}

/**
 * Everything that a worker needs to hold a run.
 *
 * @throws {OsmosisError} what {@link workOf} throws.
 */
export async function jobOf(parts: ClaimParts, run: LeasedRun): Promise<Job> {
  if (run.lease_token === null) throw new Error("a run without a lease cannot be handed out");
  const fields = {
    ...(await workOf(parts, run)),
    attempt: run.attempt,
    lease_token: run.lease_token,
    row_count: run.row_indexes?.length ?? run.dataset_rows,
  };
  if ("evaluation" in run.config) return { kind: "evaluation", ...fields, config: run.config };
  const training = {
    ...fields,
    config: run.config,
    ...(run.teacher === null ? {} : { teacher: assignmentOf(parts, run.teacher) }),
    total_steps: run.total_steps ?? 0,
    committed_steps: run.committed_steps,
    state_files: run.state_files.map((file) => fileRef(parts, file)),
  };
  if (run.replay_of === null || run.replay === null) {
    return { kind: "training", ...training, past_steps: await pastSteps(parts, run.id) };
  }
  const { from, files } = await replayStart(parts, { ...run, replay_of: run.replay_of, replay: run.replay });
  return {
    kind: "replay",
    ...training,
    committed_steps: from,
    state_files: files.map((file) => fileRef(parts, file)),
    last_step: run.replay.step,
    last_config: run.replay.last_config,
  };
}

async function pastSteps({ db }: ClaimParts, runId: string): Promise<PastStep[]> {
  const steps = await db
    .selectFrom("run_steps")
    .select(["step", "metrics"])
    .where("run_id", "=", runId)
    .orderBy("step")
    .execute();
  return steps.map(({ step, metrics }) => pastStepOf(step, metrics));
}

function assignmentOf(parts: ClaimParts, model: RunModel): ModelAssignment {
  if (model.type === "provider") return model;
  return {
    type: "local",
    name: model.name,
    base_model: model.base_model,
    base_files: model.base_files.map((file) => fileRef(parts, file)),
    adapter_files: model.adapter_files.map((file) => fileRef(parts, file)),
  };
}

/** A worker prepares a run before it fetches its model, one large file after the other, over whatever line it has. */
const FILES_REACHABLE_SECONDS = 24 * 3600;

/** A file for a worker. Its URL is relative, because a worker may reach the server by another address than users do. */
export function fileRef(
  { blobUrls, url }: ClaimParts,
  { name, key, size_bytes, sha256 }: StoredFile,
): FileRef {
  const signed = blobUrls.sign({ method: "GET", key }, FILES_REACHABLE_SECONDS);
  return { name, url: signed.slice(url.length), size_bytes, sha256 };
}

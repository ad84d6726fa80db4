/**
 * Takes one admitted rollout to its end: artifacts folder, execution, delivery, trajectory file. In the polling form the
 * trajectory is on disk before the result can be polled; in the callback form it waits for what the acknowledgements report.
 */
import type { RolloutRequest } from "@osmosis/protocol";
import { errorMessage } from "@osmosis/protocol";
import { type CallbackIo, type Delivery, deliver } from "./callbacks.ts";
import type { RolloutJob, RolloutResult } from "./execution.ts";
import type { LocalBackend } from "./local-backend.ts";
import type { RolloutFiles } from "./rollout-files.ts";
import type { RolloutHandle } from "./rollout-registry.ts";
import { completionCallback, graderCallback, isCallbackForm, jobOf } from "./wire-result.ts";

// Whatever its configs are, a backend is driven in the same way.
export type AnyBackend = Pick<LocalBackend, "execute" | "hasCapacity" | "health">;

export type RunnerParts = {
  readonly backend: AnyBackend;
  readonly files: RolloutFiles;
  readonly callbackIo: CallbackIo;
};

/** It never throws; a bug of this package ends the rollout as a failure, too. */
export async function conductRollout(
  request: RolloutRequest,
  rolloutId: string,
  handle: RolloutHandle,
  parts: RunnerParts,
): Promise<void> {
  try {
    const artifactsDir = await parts.files.makeArtifactsDir(rolloutId);
    const job = jobOf(request, { rolloutId, artifactsDir });
    if (isCallbackForm(request)) await runWithCallbacks(request, job, handle, parts);
    else await runWithLease(request, job, handle, parts);
  } catch (error) {
    const message = `The rollout server failed: ${errorMessage(error)}`;
    parts.callbackIo.log(`Rollout ${rolloutId}: ${error instanceof Error ? error.stack : message}`);
    const failure = { phase: "workflow", category: "agent_error", message } as const;
    handle.finish({ status: "failure", failure, sample: null });
  }
}

async function runWithLease(
  request: RolloutRequest,
  job: RolloutJob,
  handle: RolloutHandle,
  { backend, files }: RunnerParts,
): Promise<void> {
  const { signal } = handle;
  const result = await backend.execute(job, { signal, onStatus: (status) => handle.setStatus(status) });
  await files.saveTrajectory({ job, request, result, report: undefined });
  handle.finish(result);
}

async function runWithCallbacks(
  request: RolloutRequest,
  job: RolloutJob,
  handle: RolloutHandle,
  { backend, files, callbackIo }: RunnerParts,
): Promise<void> {
  const { signal } = handle;
  const apiKey = request.controller_api_key ?? null;
  const complete = (failed: RolloutResult | undefined): Promise<Delivery> =>
    deliver(
      { url: request.completion_callback_url ?? "", apiKey },
      completionCallback(job.rolloutId, failed),
      callbackIo,
    );
  // Grading starts while the end of the workflow is being delivered.
  let completion: Promise<Delivery> | undefined;
  const result = await backend.execute(job, {
    signal,
    onStatus(status) {
      handle.setStatus(status);
      if (status === "grading") completion = complete(undefined);
    },
  });
  handle.finish(result);
  // Whoever cancels a rollout does not wait for its callbacks.
  if (result.status === "cancelled") {
    await completion;
    return files.saveTrajectory({ job, request, result, report: undefined });
  }
  const completed = await (completion ?? complete(result.status === "failure" ? result : undefined));
  const graded = request.grader_callback_url
    ? await deliver({ url: request.grader_callback_url, apiKey }, graderCallback(job, result), callbackIo)
    : undefined;
  const report =
    (graded?.delivered && graded.report) || (completed.delivered && completed.report) || undefined;
  return files.saveTrajectory({ job, request, result, report });
}

import { rm } from "node:fs/promises";
import { join } from "node:path";
import { replaySteps, type RunEnd } from "@osmosis/controller";
import { RolloutRecord, type ReplayJob } from "@osmosis/protocol";
import type { WorkerTools } from "./execute-run.ts";
import { openFrozenModels } from "./frozen-models.ts";
import type { RunLink } from "./platform-link.ts";
import type { RunLog } from "./run-log.ts";
import { openTrainedModel } from "./trained-model.ts";

/**
 * Repeats the updates of a training run from its stored rollouts. Nothing of the workspace is installed or started: a
 * replay needs the model, the state that it begins with, and the rollouts.
 */
export async function executeReplay(
  job: ReplayJob,
  tools: WorkerTools,
  run: { readonly link: RunLink; readonly log: RunLog; readonly signal: AbortSignal },
): Promise<RunEnd> {
  const { link, log, signal } = run;
  const folder = join(tools.dataFolder, "runs", job.run_id);
  await using opened = new AsyncDisposableStack();
  opened.defer(() => rm(folder, { recursive: true, force: true }));
  const parts = { tools, opened, folder, log, signal };
  const { model, ...place } = await openTrainedModel(job, parts);
  const frozen = await openFrozenModels(job, place, parts);
  await replaySteps({
    config: job.config,
    ...(job.last_config === null ? {} : { lastConfig: job.last_config }),
    model,
    ...frozen,
    rowCount: job.row_count,
    totalSteps: job.total_steps,
    from: job.committed_steps,
    to: job.last_step,
    rolloutsOf: (step) => link.lines("stepRollouts", RolloutRecord, signal, { step: String(step) }),
    replayed: (step, metrics) =>
      link.commitStep({ step, metrics: { ...metrics }, examples: 0, state_files: [] }, signal),
    log: ({ level, step, message, details }) => log.write(level, step, message, details ?? undefined),
    signal,
  });
  return { status: "finished" };
}

import { join } from "node:path";
import type { ModelSource, TrainableModel, TrainingService } from "@osmosis/engine";
import { OsmosisError, type ModelAssignment, type ReplayJob, type TrainingJob } from "@osmosis/protocol";
import type { FileCache } from "./file-cache.ts";
import type { RunLog } from "./run-log.ts";

type Parts = {
  readonly tools: { readonly files: FileCache; readonly openService: () => Promise<TrainingService> };
  /** Closes what is put into it when the run ends. */
  readonly opened: AsyncDisposableStack;
  /** The run's own folder. */
  readonly folder: string;
  readonly log: RunLog;
  readonly signal: AbortSignal;
};

/**
 * The model of a job with the state of its last committed step loaded, and where it was opened from.
 *
 * @throws OsmosisError `VALIDATION` for a hosted model.
 */
export async function openTrainedModel(
  job: TrainingJob | ReplayJob,
  parts: Parts,
): Promise<{ model: TrainableModel; source: ModelSource }> {
  if (job.model.type === "provider") {
    throw new OsmosisError(
      "VALIDATION",
      `${job.model.name} is a hosted model: its weights cannot be trained here.`,
      {
        hint: "Name a base model of `osmosis model list --type base` in [experiment].model_path.",
      },
    );
  }
  const source = await localModel(job.model, parts);
  const service = parts.opened.use(await parts.tools.openService());
  const { advanced } = job.config;
  const model = parts.opened.use(
    await service.createModel(source, {
      method:
        advanced.method === "full"
          ? { type: "full" }
          : { type: "lora", rank: advanced.lora_rank, alpha: advanced.lora_alpha },
      seed: advanced.seed,
    }),
  );
  if (job.state_files.length > 0) {
    const state = await parts.tools.files.folderOf(
      job.state_files,
      join(parts.folder, "state-in"),
      parts.signal,
    );
    await model.loadState(state);
    parts.log.write("info", "prepare", `Going on after step ${job.committed_steps} of ${job.total_steps}`);
  }
  return { model, source };
}

/** The model's files in a folder that the engine can open; a trained adapter beside its base. */
export async function localModel(
  model: Extract<ModelAssignment, { type: "local" }>,
  { tools, folder, signal }: Parts,
): Promise<ModelSource> {
  const base = await tools.files.folderOf(model.base_files, join(folder, "model", "base"), signal);
  if (model.adapter_files.length === 0) return { folder: base };
  const adapter = await tools.files.folderOf(model.adapter_files, join(folder, "model", "adapter"), signal);
  return { folder: base, adapter };
}

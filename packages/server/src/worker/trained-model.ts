import { join } from "node:path";
import type { ModelSource, TrainableModel, TrainingService } from "@osmosis/engine";
import { OsmosisError, type ModelAssignment, type ReplayJob, type TrainingJob } from "@osmosis/protocol";
import { openTrainer } from "./choose-trainer.ts";
import type { FileCache } from "./file-cache.ts";
import type { RunLog } from "./run-log.ts";

/** What opening a model needs of a run. */
export type ModelParts = {
  readonly tools: {
    readonly files: FileCache;
    readonly openService: () => Promise<TrainingService>;
    readonly fetch?: typeof fetch;
    readonly trainerPatienceMs?: number;
  };
  /** Closes what is put into it when the run ends. */
  readonly opened: AsyncDisposableStack;
  /** The run's own folder. */
  readonly folder: string;
  readonly log: RunLog;
  readonly signal: AbortSignal;
};

/**
 * The model of a job with the state of its last committed step loaded, where it was opened from, and by whom.
 *
 * @throws OsmosisError `VALIDATION` for a hosted model.
 */
export async function openTrainedModel(
  job: TrainingJob | ReplayJob,
  parts: ModelParts,
): Promise<{ model: TrainableModel; source: ModelSource; service: TrainingService }> {
  if (job.model.type === "provider") {
    throw new OsmosisError(
      "VALIDATION",
      `${job.model.name} is a hosted model: its weights cannot be trained here.`,
      {
        hint: "Name a base model of `osmosis model list --type base` in [experiment].model_path.",
      },
    );
  }
  const { model: assigned } = job;
  const source = await localModel(assigned, parts);
  const notice = (text: string) => parts.log.write("info", "trainer", text);
  const service = parts.opened.use(
    await openTrainer({ ...job, model: assigned }, source, { ...parts, notice }),
  );
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
      "once",
    );
    await model.loadState(state);
    parts.log.write("info", "prepare", `Going on after step ${job.committed_steps} of ${job.total_steps}`);
  }
  return { model, source, service };
}

/** The model's files in a folder that the engine can open; a trained adapter beside its base. */
export async function localModel(
  model: Extract<ModelAssignment, { type: "local" }>,
  {
    tools,
    folder,
    signal,
  }: Pick<ModelParts, "folder" | "signal"> & { readonly tools: { readonly files: FileCache } },
): Promise<ModelSource> {
  const base = await tools.files.folderOf(model.base_files, join(folder, "model", "base"), signal);
  if (model.adapter_files.length === 0) return { folder: base };
  const adapter = await tools.files.folderOf(model.adapter_files, join(folder, "model", "adapter"), signal);
  return { folder: base, adapter };
}

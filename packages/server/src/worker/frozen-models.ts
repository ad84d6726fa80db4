import { join } from "node:path";
import type { ModelSource, Scorer, TrainingService } from "@osmosis/engine";
import type { ReplayJob, TrainingJob } from "@osmosis/protocol";
import { localModel, type ModelParts } from "./trained-model.ts";

/** Models that an update compares the policy with. */
export type FrozenModels = { readonly reference?: Scorer; readonly teacher?: Scorer };

/**
 * Opens the models that the configuration of a job compares the policy with: the one that training began with, where the
 * divergence from it counts, and the teacher.
 */
export async function openFrozenModels(
  job: TrainingJob | ReplayJob,
  { source, service }: { readonly source: ModelSource; readonly service: TrainingService },
  parts: ModelParts,
): Promise<FrozenModels> {
  const { opened, folder, log } = parts;
  const reference =
    job.config.advanced.kl_coef > 0 ? opened.use(await service.openScorer(source)) : undefined;
  if (job.teacher?.type !== "local") return reference === undefined ? {} : { reference };
  log.write("info", "prepare", `Loading teacher ${job.teacher.name}`);
  const own = tokenizerOf(job.model);
  const other = tokenizerOf(job.teacher);
  if (own !== other) {
    log.write(
      "warning",
      "prepare",
      `${job.teacher.name} has another tokenizer.json than ${job.model.name}: it is asked about token ids, so unless ` +
        "both mean the same, what it teaches is noise.",
    );
  }
  const at = await localModel(job.teacher, { ...parts, folder: join(folder, "teacher") });
  const teacher = opened.use(await service.openScorer(at));
  return { ...(reference === undefined ? {} : { reference }), teacher };
}

function tokenizerOf(model: TrainingJob["model"]): string | undefined {
  return model.type === "local"
    ? model.base_files.find((file) => file.name === "tokenizer.json")?.sha256
    : undefined;
}

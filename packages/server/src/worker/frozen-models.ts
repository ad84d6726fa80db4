import { join } from "node:path";
import {
  readModelSize,
  tokenIdMismatch,
  type ModelSource,
  type Sampler,
  type Scorer,
  type TrainingService,
} from "@osmosis/engine";
import { OsmosisError, type ReplayJob, type TrainingJob } from "@osmosis/protocol";
import { localModel, type ModelParts } from "./trained-model.ts";

/** Models that an update compares the policy with. */
export type FrozenModels = { readonly reference?: Scorer; readonly teacher?: Scorer };

/**
 * Opens the models that the configuration of a job compares the policy with: the one that training began with, where the
 * divergence from it counts, and the teacher.
 *
 * @throws OsmosisError `VALIDATION` for a teacher whose token ids mean something else than the model's.
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
  const at = await localModel(job.teacher, { ...parts, folder: join(folder, "teacher") });
  const mismatch = await tokenIdMismatch(source.folder, at.folder);
  if (mismatch !== undefined) {
    throw new OsmosisError(
      "VALIDATION",
      `${job.teacher.name} cannot teach ${job.model.name}: their tokenizers differ, ${mismatch}.`,
      { hint: "Name a teacher of the same model family in [advanced].teacher_model." },
    );
  }
  const [reads, needs] = (await Promise.all([at, source].map((one) => readModelSize(one.folder)))).map(
    (size) => size.contextLength,
  );
  if (reads !== undefined && needs !== undefined && reads < needs) {
    log.write(
      "warning",
      "prepare",
      `The teacher reads ${reads} tokens at most, the policy ${needs}: a longer conversation is learned without it.`,
    );
  }
  const teacher = opened.use(await service.openScorer(at));
  return { ...(reference === undefined ? {} : { reference }), teacher };
}

/**
 * The model as the sampler of a run, whose conversations grow no longer than the reference can read them. A scorer at a
 * trainer by URL has to sample one token more than it is asked about, so it reads one less than the model writes.
 */
export function withinReach(model: Sampler, { reference }: FrozenModels): Sampler {
  return {
    contextLength: Math.min(model.contextLength, reference?.contextLength ?? Infinity),
    sample: (request) => model.sample(request),
    endConversation: (conversation) => model.endConversation(conversation),
    [Symbol.asyncDispose]: () => model[Symbol.asyncDispose](),
  };
}

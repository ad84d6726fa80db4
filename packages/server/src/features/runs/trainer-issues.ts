import { contradictionsByUrl, weightsAreHere, type Issue } from "@osmosis/protocol";
import type { ServerConfig } from "../../config.ts";
import type { RunModel } from "../models/service.ts";
import type { Submission } from "./submission.ts";

const REMEDY =
  "set [advanced].trainer to the address of a trainer that has it, or let the platform have one, by OSMOSIS_TRAINER_URL";

/**
 * What a submission asks of its trainer that this cannot do, said before anything is queued: settings that a trainer by
 * URL cannot follow, and models that the engine of a worker cannot open since their weights are not here.
 */
export function trainerIssues(
  { trainer: platforms }: Pick<ServerConfig, "trainer">,
  submission: Submission,
  { model, teacher }: { readonly model: RunModel; readonly teacher: RunModel | undefined },
): Issue[] {
  const { trainer } = submission.config.advanced;
  const isElsewhere = lacksWeights(model);
  if (isElsewhere && trainer === "embedded") {
    return [
      { key: "advanced.trainer", message: `is "embedded", but ${model.name} has no weights here; ${REMEDY}` },
    ];
  }
  // A checkpoint that is not all here says itself which trainer has it.
  const holder = isElsewhere && model.name !== model.base_model ? `that of ${model.name}` : undefined;
  const given = holder ?? (platforms === undefined ? undefined : "the platform's");
  if (isElsewhere && trainer === undefined && given === undefined) {
    const message = `names ${model.name}, which has no weights here, and there is no trainer by URL; ${REMEDY}`;
    return [{ key: "experiment.model_path", message }];
  }
  // An evaluation asks nothing more of it; what a run that names its trainer asks was checked with its configuration.
  if (submission.kind === "evaluation" || (trainer !== undefined && trainer !== "embedded")) return [];
  if (trainer === undefined && given !== undefined) {
    const way = isElsewhere ? "" : '; [advanced].trainer = "embedded" uses the engine of the worker';
    return contradictionsByUrl(submission.config.advanced, `${given}${way}`).map(({ key, message }) => ({
      key: `advanced.${key}`,
      message,
    }));
  }
  if (teacher === undefined || !lacksWeights(teacher)) return [];
  const message = `names ${teacher.name}, which has no weights here: the engine of the worker cannot ask it; ${REMEDY}`;
  return [{ key: "advanced.teacher_model", message }];
}

function lacksWeights(model: RunModel): model is Extract<RunModel, { type: "local" }> {
  return model.type === "local" && !weightsAreHere(model);
}

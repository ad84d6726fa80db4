import type { Datum, ForwardBackwardResult, Scorer, TrainableModel } from "@osmosis/engine";
import type { TrainingRunConfig } from "@osmosis/protocol";
import type { RunPorts } from "../run-ports.ts";
import type { TrainingBatch } from "./batch.ts";
import { requireFiniteLogprobs, requireUsable } from "./divergence.ts";
import { finite } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import { linearData, nativeLoss, objectiveOf } from "./objective.ts";
import type { Scores } from "./objective.ts";
import { policyMetrics } from "./policy-metrics.ts";

/** What an update needs beside its batch: nothing of rollouts, so that it can be repeated from stored ones. */
export type UpdateOptions = {
  readonly config: {
    readonly sampling: Pick<TrainingRunConfig["sampling"], "rollout_temperature">;
    readonly advanced: TrainingRunConfig["advanced"];
  };
  readonly model: TrainableModel;
  /** The model that training began with; needed where `kl_coef` is not 0. */
  readonly reference?: Scorer | undefined;
  /** The model of `teacher_model`; needed where there is one. */
  readonly teacher?: Scorer | undefined;
  readonly ports: Pick<RunPorts, "log">;
};

/**
 * One gradient over the whole batch and one step of the optimiser; neither when there is nothing to learn from.
 *
 * @throws OsmosisError `RUN_FAILED` when log probabilities are not finite, before or after the update.
 */
export async function update(
  batch: TrainingBatch,
  learningRate: number,
  options: UpdateOptions,
): Promise<Metrics> {
  const { config, model, ports } = options;
  const { advanced } = config;
  const counts = {
    "train/lr": learningRate,
    "train/groups_left_out": batch.groupsLeftOut,
    "train/rollouts_left_out": batch.rolloutsLeftOut,
    "train/reward_used": batch.rewardUsed,
    "train/overlong_penalty": batch.overlongPenalty,
  };
  if (batch.data_B.length === 0) return finite({ ...counts, "train/updated": 0 });
  const learned = await addGradient(batch, options);
  const { gradNorm, updated } = await model.optimStep({
    learningRate,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weightDecay: advanced.weight_decay,
    gradClipNorm: advanced.grad_clip_norm,
  });
  if (updated) {
    const temperature = config.sampling.rollout_temperature;
    await requireUsable(model, batch.data_B, { temperature, learningRate });
  } else {
    ports.log({
      level: "warning",
      step: "train",
      message: "The gradient was not finite; the update was skipped, the weights stay as they were.",
    });
  }
  warnAboutLostMetrics(learned, ports.log);
  return finite({
    ...counts,
    ...learned,
    "train/tokens": batch.sampledTokens,
    "train/sequences": batch.data_B.length,
    "train/grad_norm": gradNorm,
    "train/updated": updated ? 1 : 0,
  });
}

/**
 * Adds the objective's gradient to the model's. Where the trainer knows a loss with that gradient, one pass does it;
 * otherwise a forward pass, the objective in plain JavaScript, and a backward pass of a loss that is linear in the log
 * probabilities, which every trainer has.
 */
async function addGradient(batch: TrainingBatch, options: UpdateOptions): Promise<Metrics> {
  const { config, model } = options;
  const { advanced } = config;
  const { data_B } = batch;
  const temperature = { temperature: config.sampling.rollout_temperature };
  const native = nativeLoss(advanced);
  const result =
    native === undefined
      ? await model.forward(data_B, LINEAR, temperature)
      : await model.forwardBackward(data_B, native, temperature);
  requireFiniteLogprobs("the model", data_B, result.logprobs_B_T);
  const scores = { data_B, ...(await scoresOf(batch, result, options)) };
  const objective = objectiveOf(scores, advanced);
  if (native === undefined) await model.forwardBackward(linearData(scores, objective), LINEAR, temperature);
  return {
    "train/loss": objective.loss,
    "train/policy_loss": objective.policyLoss,
    "train/entropy_loss": result.entropy,
    ...policyMetrics(scores, objective, advanced),
  };
}

/** What is not finite is left out of the curves; only the entropy may be missing because a trainer does not tell it. */
function warnAboutLostMetrics(learned: Metrics, log: RunPorts["log"]): void {
  const lost = Object.entries(learned).filter(
    ([key, value]) => !Number.isFinite(value) && key !== "train/entropy_loss",
  );
  if (lost.length === 0) return;
  const values = lost.map(([key, value]) => `${key} is ${value}`).join(", ");
  log({
    level: "warning",
    step: "train",
    message: `Not finite, and left out of the step's metrics: ${values}.`,
  });
}

const LINEAR = { type: "importance_sampling" } as const;

async function scoresOf(
  { data_B }: TrainingBatch,
  { logprobs_B_T }: ForwardBackwardResult,
  { config, reference, teacher }: UpdateOptions,
): Promise<Omit<Scores, "data_B">> {
  const { kl_coef, teacher_model } = config.advanced;
  const temperature = { temperature: config.sampling.rollout_temperature };
  const ask = async (
    scorer: Scorer | undefined,
    role: string,
    asked_B = data_B,
  ): Promise<readonly Float32Array[]> => {
    if (scorer === undefined) throw new Error(`the update needs a ${role}`);
    const found_B_T = await scorer.logprobs(asked_B, temperature);
    requireFiniteLogprobs(`the ${role}`, asked_B, found_B_T);
    return found_B_T;
  };
  /** Its context may be shorter than the policy's; what does not fit is learned without it. */
  const askTeacher = async (): Promise<readonly (Float32Array | undefined)[]> => {
    const { contextLength = Infinity } = teacher ?? {};
    const fits = ({ tokens_T }: Datum): boolean => tokens_T.length <= contextLength;
    const found = (await ask(teacher, "teacher", data_B.filter(fits))).values();
    return data_B.map((datum) => (fits(datum) ? found.next().value : undefined));
  };
  return {
    logprobs_B_T,
    ...(kl_coef > 0 && { reference_B_T: await ask(reference, "reference") }),
    ...(teacher_model !== undefined && { teacher_B_T: await askTeacher() }),
  };
}

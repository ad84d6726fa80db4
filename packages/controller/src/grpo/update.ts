import type { LossSpec } from "@osmosis/engine";
import { OsmosisError, type TrainingRunConfig } from "@osmosis/protocol";
import type { TrainingBatch } from "./batch.ts";
import { updateMetrics } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import type { TrainRunOptions } from "./train-options.ts";

type UpdateOptions = {
  readonly config: Pick<TrainRunOptions["config"], "advanced" | "sampling">;
  readonly model: TrainRunOptions["model"];
  readonly ports: Pick<TrainRunOptions["ports"], "log">;
};

/** One gradient over the whole batch and one step of the optimiser; neither when there is nothing to learn from. */
export async function update(
  batch: TrainingBatch,
  learningRate: number,
  { config, model, ports }: UpdateOptions,
): Promise<Metrics> {
  const { advanced, sampling } = config;
  const counts = {
    "train/lr": learningRate,
    "train/groups_left_out": batch.groupsLeftOut,
    "train/rollouts_left_out": batch.rolloutsLeftOut,
  };
  if (batch.data_B.length === 0) return { ...counts, "train/updated": 0 };
  const loss = lossOf(advanced);
  const result = await model.forwardBackward(batch.data_B, loss, {
    temperature: sampling.rollout_temperature,
  });
  const { gradNorm, updated } = await model.optimStep({
    learningRate,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weightDecay: advanced.weight_decay,
    gradClipNorm: advanced.grad_clip_norm,
  });
  if (!updated) {
    ports.log({
      level: "warning",
      step: "train",
      message: "The gradient was not finite; the update was skipped.",
    });
  }
  return {
    ...counts,
    ...updateMetrics(batch, result, loss),
    "train/grad_norm": gradNorm,
    "train/updated": updated ? 1 : 0,
  };
}

function lossOf({ loss, clip_low, clip_high }: TrainingRunConfig["advanced"]): LossSpec {
  if (loss === "gspo") throw new OsmosisError("VALIDATION", "The loss gspo is not available.");
  return loss === "importance_sampling"
    ? { type: loss }
    : { type: loss, clipLow: 1 - clip_low, clipHigh: 1 + clip_high };
}

import type { Checkpoint, TrainedModel } from "@osmosis/protocol";
import { formatNumber } from "../output/format.ts";

/** The reward of a checkpoint with what it is of: held-out rows, or the batch that its step trained on. */
export function checkpointReward(
  checkpoint: Pick<Checkpoint | TrainedModel, "reward" | "validation_reward">,
): string {
  const { reward, validation_reward: validation } = checkpoint;
  if (validation !== null) return `${formatNumber(validation)} validation`;
  return reward === null ? "–" : `${formatNumber(reward)} last step`;
}

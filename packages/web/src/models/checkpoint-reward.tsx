import type { Checkpoint, TrainedModel } from "@osmosis/protocol";
import type { ReactElement } from "react";
import { formatNumber } from "../format.ts";

/** The reward of a checkpoint with what it is of: held-out rows, or the batch that its step trained on. */
export function CheckpointReward(props: {
  readonly of: Pick<Checkpoint | TrainedModel, "reward" | "validation_reward">;
}): ReactElement {
  const { reward, validation_reward: validation } = props.of;
  return (
    <>
      {formatNumber(validation ?? reward)}
      {reward === null ? null : <small>{validation === null ? "last step" : "validation"}</small>}
    </>
  );
}

import { Grader, lastAssistantText, type GraderContext } from "@osmosis/sdk";
import { rewardOf } from "./reward.ts";

export class OneWordGrader extends Grader {
  override grade(ctx: GraderContext): void {
    if (typeof ctx.label !== "string") throw new Error("the row has no label");
    ctx.setReward(rewardOf(lastAssistantText(ctx.sample.messages), ctx.label));
  }
}

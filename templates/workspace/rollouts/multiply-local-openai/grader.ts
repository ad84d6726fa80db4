import { Grader, lastAssistantText, type GraderContext } from "@osmosis/sdk";
import { answerIn } from "./answer.ts";

const TOLERANCE = 0.01;

/** 1 for the right product, 0 for any other answer or none. */
export class MultiplyGrader extends Grader {
  override grade(ctx: GraderContext): void {
    const expected = Number(ctx.label ?? Number.NaN);
    if (!Number.isFinite(expected)) throw new Error(`the label ${JSON.stringify(ctx.label)} is not a number`);
    const answer = answerIn(lastAssistantText(ctx.sample.messages));
    ctx.setReward(answer !== undefined && Math.abs(answer - expected) < TOLERANCE ? 1 : 0);
  }
}

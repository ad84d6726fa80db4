/**
 * A rollout server of the SDK in which 10 % of the rollouts crash, 5 % hang, and 5 % get garbage from their grader. Which
 * rollout does what depends on its id alone. Every fault is written to the journal `CHAOS_JOURNAL`, one line each, before
 * it happens: `<outcome that it must have> <id>`.
 */
import { createHash } from "node:crypto";
import { appendFileSync } from "node:fs";
import { AgentWorkflow, Grader, LocalBackend, currentRollout, serveRollout } from "@osmosis/sdk";
import type { AgentWorkflowContext, GraderContext } from "@osmosis/sdk";

const GARBAGE: readonly unknown[] = [Number.NaN, Number.POSITIVE_INFINITY, "high", null, 7, -0.5];

function chanceOf(id: string): number {
  return createHash("sha256").update(id).digest().readUInt32LE(0) / 2 ** 32;
}

function faultOf(id: string): "crash" | "hang" | "garbage" | undefined {
  if (!id.includes("-train-")) return undefined;
  const chance = chanceOf(id);
  if (chance < 0.1) return "crash";
  if (chance < 0.15) return "hang";
  return chance < 0.2 ? "garbage" : undefined;
}

function write(outcome: string, id: string): void {
  appendFileSync(process.env["CHAOS_JOURNAL"] ?? "", `${outcome} ${id}\n`);
}

class Answers extends AgentWorkflow {
  override async run({ prompt, signal, rolloutId }: AgentWorkflowContext) {
    const fault = faultOf(rolloutId);
    if (fault === "crash") {
      write("agent", rolloutId);
      throw new TypeError("the toy box is empty");
    }
    if (fault === "hang") {
      write("timeout", rolloutId);
      // It listens to nobody, as agents that hang do.
      await new Promise(() => {});
    }
    const { chatCompletionsUrl, apiKey } = currentRollout();
    const response = await fetch(`${chatCompletionsUrl}/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "osmosis-rollout", messages: prompt }),
      signal,
    });
    // The gateway's answers have this shape.
    const { choices } = (await response.json()) as { choices: { message: object }[] };
    return [...prompt, choices[0]?.message ?? {}];
  }
}

class SaysTheLabel extends Grader {
  override grade(ctx: GraderContext) {
    if (faultOf(ctx.rolloutId) === "garbage") {
      write("grader", ctx.rolloutId);
      const index = Math.floor(1e6 * chanceOf(ctx.rolloutId)) % GARBAGE.length;
      // Graders in plain JavaScript may give anything.
      ctx.setReward(GARBAGE[index] as number);
      return;
    }
    const right = ctx.sample.messages.at(-1)?.["content"] === ctx.label;
    ctx.addMetrics({ right: right ? 1 : 0 });
    ctx.setReward(right ? 1 : 0);
  }
}

await serveRollout({
  backend: new LocalBackend({ workflow: Answers, grader: SaysTheLabel, concurrency: null }),
});

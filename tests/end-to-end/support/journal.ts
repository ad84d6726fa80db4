import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { RolloutSummary } from "@osmosis/protocol";

/**
 * Changes the template's workflow in a clone: each execution writes a line into the file of `EXECUTIONS`, before it does
 * anything else, and every second rollout ends late, so that there is a time in which a part of a step is recorded.
 */
export async function addExecutionJournal(workspace: string): Promise<void> {
  const folder = join(workspace, "rollouts/multiply-local-openai");
  const source = await readFile(join(folder, "workflow.ts"), "utf8");
  await writeFile(join(folder, "multiply-workflow.ts"), source);
  await writeFile(join(folder, "workflow.ts"), WORKFLOW);
}

const WORKFLOW = `
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { AgentWorkflowContext } from "@osmosis/sdk";
import { MultiplyWorkflow as Base } from "./multiply-workflow.ts";

export class MultiplyWorkflow extends Base {
  override async run(ctx: AgentWorkflowContext): Promise<void> {
    const line = JSON.stringify({ rolloutId: ctx.rolloutId, at: Date.now() });
    appendFileSync(process.env["EXECUTIONS"] ?? "", line + "\\n");
    await super.run(ctx);
    const [, row = 0, sample = 0] = /-r(\\d+)-n(\\d+)/.exec(ctx.rolloutId) ?? [];
    if ((Number(row) + Number(sample)) % 2 === 1) await sleep(Number(process.env["LATE_MS"]), undefined, { signal: ctx.signal });
  }
}
`;

export type Execution = { readonly rolloutId: string; readonly at: number };

export async function executionsIn(file: string): Promise<Execution[]> {
  const text = await readFile(file, "utf8").catch(() => "");
  // Written by the workflow above.
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Execution);
}

/** `train/3/200/1`: phase, step, row and sample, without the run and the attempt. */
export function keyOfExecution({ rolloutId }: Execution): string {
  const match = /-(eval|train|validation)-s(\d+)-r(\d+)-n(\d+)/.exec(rolloutId);
  return match === null ? rolloutId : match.slice(1).join("/");
}

export function keyOfRollout({ phase, step, row_index, sample_index }: RolloutSummary): string {
  return [phase, step, row_index, sample_index].join("/");
}

/** Executions that began after the same rollout was recorded: work that was done twice. */
export function repeatedWork(
  executions: readonly Execution[],
  recorded: readonly RolloutSummary[],
): Execution[] {
  const recordedAt = new Map(
    recorded.map((rollout) => [keyOfRollout(rollout), Date.parse(rollout.created_at)]),
  );
  return executions.filter((execution) => {
    const at = recordedAt.get(keyOfExecution(execution));
    return at !== undefined && execution.at > at;
  });
}

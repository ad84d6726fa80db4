import { isScored } from "@osmosis/protocol";
import type { RolloutRecord } from "@osmosis/protocol";
import type { RolloutTask } from "./collect-rollouts.ts";

/** The executions of each task that were recorded in an earlier life of the run, in the order of recording. */
export type RecordedRollouts = (task: RolloutTask) => readonly RolloutRecord[];

export function recordedRollouts(
  recorded: readonly RolloutRecord[],
  { phase, step }: Pick<RolloutRecord, "phase" | "step">,
): RecordedRollouts {
  const index = new Map<string, RolloutRecord[]>();
  for (const rollout of recorded) {
    if (rollout.phase !== phase || rollout.step !== step) continue;
    const key = `${rollout.row_index}/${rollout.sample_index}`;
    const known = index.get(key);
    if (known === undefined) index.set(key, [rollout]);
    else known.push(rollout);
  }
  return ({ row, sampleIndex }) => index.get(`${row.row_index}/${sampleIndex}`) ?? [];
}

/** The execution that counts: a scored one, else the last one. */
export function countingOf(executions: readonly RolloutRecord[]): RolloutRecord | undefined {
  return executions.find(({ outcome }) => isScored(outcome)) ?? executions.at(-1);
}

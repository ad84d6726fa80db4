import { isScored } from "@osmosis/protocol";
import type { RolloutRecord } from "@osmosis/protocol";
import type { RunPorts } from "../run-ports.ts";

/** How many failures of one batch are told one by one; the rest is counted in the metrics. */
const TOLD_FAILURES = 5;

/** Tells the log about rollouts without a reward, the first few of a batch. */
export function failureLog(log: RunPorts["log"], step: string): (rollout: RolloutRecord) => void {
  let failures = 0;
  return ({ rollout_id, outcome, error }) => {
    if (isScored(outcome) || ++failures > TOLD_FAILURES) return;
    const message = `Rollout ${rollout_id} ended as ${outcome}: ${error ?? "no message"}`;
    log({ level: "warning", step, message });
    if (failures < TOLD_FAILURES) return;
    log({ level: "warning", step, message: "Further failures here are counted and kept, but not logged." });
  };
}

/** Tells the log how far an evaluation is, at every tenth. */
export function progressLog(
  log: RunPorts["log"],
  { done, total }: { readonly done: number; readonly total: number },
): (rollout: RolloutRecord) => void {
  const tenth = (count: number): number => Math.floor((10 * count) / total);
  let ended = done;
  return () => {
    ended += 1;
    if (tenth(ended) === tenth(ended - 1)) return;
    log({ level: "info", step: "evaluate", message: `${ended} of ${total} rollouts have ended.` });
  };
}

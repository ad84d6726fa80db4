import type { TrainingRunConfig } from "@osmosis/protocol";
import type { RunEnd, RunPorts } from "../run-ports.ts";
import type { Metrics } from "./metrics.ts";
import { isValidated } from "./milestones.ts";

/** Tells about settings that do not do what somebody may expect of them. */
export function warnAboutSettings(
  {
    sampling: { rollout_top_p: topP },
    checkpoints,
    advanced,
  }: StopSettings & Pick<TrainingRunConfig, "sampling">,
  { log, totalSteps }: { readonly log: RunPorts["log"]; readonly totalSteps: number },
): void {
  if (advanced.warmup_steps >= totalSteps) {
    log({
      level: "warning",
      step: "train",
      message:
        `The warm-up takes ${advanced.warmup_steps} steps and the run has ${totalSteps}, ` +
        "so the learning rate only grows: lower [advanced].warmup_steps, or train for longer.",
    });
  }
  const stopsEarly = advanced.early_stop_patience > 0 || advanced.early_stop_reward !== undefined;
  if (stopsEarly && !isValidated({ checkpoints, advanced })) {
    log({
      level: "warning",
      step: "train",
      message:
        "The run cannot stop early, since nothing is validated: set [advanced].holdout_rows and [checkpoints].eval_interval.",
    });
  }
  if (topP === 1) return;
  log({
    level: "warning",
    step: "train",
    message:
      `rollout_top_p is ${topP}: the trainer compares with the whole distribution, the sampler ` +
      "draws from a part of it, so ratios are biased. Use 1 unless you have a reason.",
  });
}

type StopSettings = Pick<TrainingRunConfig, "checkpoints" | "advanced">;

/** The end of a run that reached what it was to reach before its last step. */
export function endedEarly(reason: string, log: RunPorts["log"]): RunEnd {
  log({ level: "info", step: "train", message: `Stopping early, as configured: ${reason}` });
  return { status: "finished" };
}

/** A step in one line; every pass rate with its n and its temperature. */
export function stepSummary(
  metrics: Metrics,
  { step, totalSteps }: { readonly step: number; readonly totalSteps: number },
): string {
  const number = (key: string): string => metrics[key]?.toFixed(3) ?? "none";
  const validation =
    metrics["eval/validation/n"] === undefined
      ? ""
      : `; validation reward ${number("eval/validation/reward")}, pass rate ${number("eval/validation/pass_rate")}` +
        ` (n=${metrics["eval/validation/n"]}, temperature ${metrics["eval/validation/temperature"]})`;
  return (
    `Step ${step} of ${totalSteps}: reward ${number("rollout/raw_reward")}, ` +
    `pass rate ${number("rollout/pass_rate")} ` +
    `(n=${metrics["rollout/n"]}, temperature ${metrics["rollout/temperature"]})${validation}`
  );
}

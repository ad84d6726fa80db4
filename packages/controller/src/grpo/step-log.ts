import type { TrainingRunConfig } from "@osmosis/protocol";
import type { RunPorts } from "../run-ports.ts";
import type { Metrics } from "./metrics.ts";

/** Tells about settings under which the trainer's ratios are not those of what was sampled. */
export function warnAboutSampling(
  { rollout_top_p: topP }: TrainingRunConfig["sampling"],
  log: RunPorts["log"],
): void {
  if (topP === 1) return;
  log({
    level: "warning",
    step: "train",
    message:
      `rollout_top_p is ${topP}: the trainer compares with the whole distribution, the sampler ` +
      "draws from a part of it, so ratios are biased. Use 1 unless you have a reason.",
  });
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

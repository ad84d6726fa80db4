import { wilsonInterval } from "@osmosis/controller";
import type { LastStep, NewestValidation } from "@osmosis/protocol";
import type { RunRow } from "./run-rows.ts";

/** What the newest validation of a training run says, from the metrics of its step. */
export function newestValidation(row: RunRow): NewestValidation | null {
  const { validation_step: step, validation_metrics: metrics } = row;
  const rate = metrics?.["eval/validation/pass_rate"];
  const n = metrics?.["eval/validation/n"] ?? 0;
  if (step === null || metrics === null || rate === undefined || n === 0) return null;
  return {
    step,
    reward: metrics["eval/validation/reward"] ?? null,
    // One rollout of each held-out row.
    pass_rate: wilsonInterval(rate, { n }),
    temperature: metrics["eval/validation/temperature"] ?? 0,
  };
}

/** What the rollouts of the last committed step say. */
export function lastStep({ committed_steps: step, last_metrics: metrics, config }: RunRow): LastStep | null {
  if (metrics === null || !("training" in config)) return null;
  return {
    step,
    reward: metrics["rollout/raw_reward"] ?? null,
    pass_rate: metrics["rollout/pass_rate"] ?? null,
    n: metrics["rollout/n"] ?? 0,
    prompts: config.training.rollout_batch_size,
    rollouts_per_prompt: config.training.n_samples_per_prompt,
    temperature: metrics["rollout/temperature"] ?? config.sampling.rollout_temperature,
  };
}

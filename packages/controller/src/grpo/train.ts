import { failureGuard, noneScored } from "../rollout/collect-rollouts.ts";
import type { RunEnd } from "../run-ports.ts";
import { batchOf } from "./batch.ts";
import { finite, rolloutMetrics, validationMetrics } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import { learningRate, stepsOf } from "./schedule.ts";
import { stepSummary, warnAboutSampling } from "./step-log.ts";
import { VALIDATION_TEMPERATURE, groupsOf, trainingRollouts, validationRollouts } from "./step-rollouts.ts";
import { createStopwatch } from "./stopwatch.ts";
import type { TrainRunOptions } from "./train-options.ts";
import { update } from "./update.ts";

/**
 * Group-relative policy optimisation, on policy: every step samples groups of rollouts with the newest weights, and makes
 * one update with them. The same configuration, seed and rows give the same curve, also when the run is taken up again in
 * the middle of a step.
 *
 * A step whose groups teach nothing makes no update, but is committed and counted.
 *
 * @throws the signal's reason when it aborts, and whatever a port or the model throws.
 */
export async function trainRun(options: TrainRunOptions): Promise<RunEnd> {
  const { config, model, ports, rows, clock } = options;
  const { sampling, checkpoints, advanced } = config;
  const totalSteps = stepsOf(config, rows.length);
  if (totalSteps === 0) return failed(`No row is left to train on: all ${rows.length} rows are held out.`);
  warnAboutSampling(sampling, ports.log);
  const stopReason = failureGuard(advanced.max_consecutive_failures);
  let scoredBefore = options.committedSteps > 0;
  let weightsVersion = await model.syncSampler();

  for (let step = options.committedSteps + 1; step <= totalSteps; step++) {
    const watch = createStopwatch(clock, options.recorded);
    const isDue = (every: number): boolean => every > 0 && (step % every === 0 || step === totalSteps);

    const collected = await watch.time("rollout", () => trainingRollouts({ ...options, step, stopReason }));
    if (collected.type === "stopped") return failed(collected.reason);
    const { rollouts, tasks } = collected;
    const nothing = scoredBefore ? undefined : noneScored(rollouts);
    if (nothing !== undefined) return failed(nothing);
    scoredBefore = true;
    const groups_P = groupsOf(tasks, rollouts, (rewards) => options.transformRewards?.(rewards, step));
    const sampled = rolloutMetrics(groups_P, { weightsVersion, temperature: sampling.rollout_temperature });

    const batch = batchOf(groups_P, config);
    const lr = learningRate(config, { step, totalSteps });
    const updated = await watch.time("train", () => update(batch, lr, options));
    weightsVersion = await watch.time("update_weights", () => model.syncSampler());

    let validation: Metrics = {};
    if (advanced.holdout_rows > 0 && isDue(checkpoints.eval_interval)) {
      const held = await watch.time("validation", () => validationRollouts({ ...options, step, stopReason }));
      if (held.type === "stopped") return failed(held.reason);
      validation = validationMetrics(held.rollouts, VALIDATION_TEMPERATURE);
    }

    const metrics = finite({ ...sampled, ...updated, ...validation, ...watch.metrics(rollouts, batch) });
    if (isDue(checkpoints.checkpoint_save_freq)) {
      await ports.checkpoint({
        step,
        reward: metrics["eval/validation/reward"] ?? metrics["rollout/raw_reward"] ?? null,
        method: advanced.method,
        saveWeights: (folder) => model.saveWeights(folder),
      });
    }
    await ports.commitStep({
      step,
      metrics,
      examples: rollouts.length,
      saveState: (folder) => model.saveState(folder),
    });
    ports.log({ level: "info", step: `step ${step}`, message: stepSummary(metrics, { step, totalSteps }) });
  }
  return { status: "finished" };
}

function failed(error: string): RunEnd {
  return { status: "failed", error };
}

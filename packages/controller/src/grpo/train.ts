import { OsmosisError } from "@osmosis/protocol";
import { deadlineOf } from "../deadline.ts";
import { noneScored, takenWith } from "../rollout/failure-guard.ts";
import type { RunEnd } from "../run-ports.ts";
import { batchOf } from "./batch.ts";
import { boundedModel, boundedScorer } from "./bounded-model.ts";
import { MAX_SKIPPED_UPDATES } from "./divergence.ts";
import { splitRows, warnAboutLeaks } from "./held-out.ts";
import { finite, validationMetrics } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import { isValidated, openMilestones, pastStepOf } from "./milestones.ts";
import { learningRate, stepsOf } from "./schedule.ts";
import { everyRollout, rolledOutMetrics } from "./step-metrics.ts";
import { openStepPipeline } from "./step-pipeline.ts";
import { endedEarly, stepSummary, warnAboutSettings } from "./step-log.ts";
import { VALIDATION_TEMPERATURE, groupsOf } from "./step-rollouts.ts";
import { createStopwatch } from "./stopwatch.ts";
import type { TrainRunOptions } from "./train-options.ts";
import { update } from "./update.ts";

/**
 * Group-relative policy optimisation: every step rolls out groups, and makes one update with them. On policy the rollouts
 * of a step begin when the step before it is done, with its weights; the same configuration, seed and rows then give the
 * same curve, also when the run is taken up again in the middle of a step. Asynchronously, later steps are rolled out
 * while earlier ones train (`step-pipeline.ts`); with a staleness of 0 the curve is that of the synchronous loop.
 *
 * Validation sees exactly the weights after its step: nothing is published until it has ended. A step whose groups teach
 * nothing makes no update, but is committed and counted.
 *
 * @throws the signal's reason when it aborts, why the gateway lost its model, and whatever a port or the model throws.
 */
export async function trainRun(given: TrainRunOptions): Promise<RunEnd> {
  using bounds = deadlineOf([given.signal, given.gateway.lost]);
  const options = withDeadlines({ ...given, signal: bounds.signal });
  const { config, ports, rows, clock, committedSteps } = options;
  const { sampling, checkpoints, advanced } = config;
  const totalSteps = stepsOf(config, rows.length);
  const split = splitRows(rows, advanced.holdout_rows);
  if (totalSteps === 0 || !rows.some(split.isTrained)) {
    return failed(`No row is left to train on: all ${rows.length} rows are held out, or repeat one that is.`);
  }
  warnAboutSettings(config, { log: ports.log, totalSteps });
  warnAboutLeaks(split, ports.log);
  const milestones = openMilestones(config, options.pastSteps ?? []);
  const ended = milestones.earlyStop();
  if (ended !== undefined) return endedEarly(ended, ports.log);

  const { model } = options;
  await requireTemperature(options);
  let weightsVersion = await model.syncSampler();
  await using pipeline = openStepPipeline(options, { split, totalSteps });
  for (let step = committedSteps + 1; step <= totalSteps; step++) {
    const watch = createStopwatch(clock, options.recorded);
    const isDue = (every: number): boolean => every > 0 && (step % every === 0 || step === totalSteps);

    pipeline.published(step - 1, weightsVersion);
    const taken = await watch.time("wait_for_batch", () => pipeline.take(step));
    if (taken.type === "stopped") return failed(taken.reason);
    const first = taken.first_P.flat();
    const nothing = step === 1 && first.length > 0 ? noneScored(first, takenWith(options.server)) : undefined;
    if (nothing !== undefined) return failed(nothing);
    watch.took("rollout", taken.rolloutSeconds);
    const rolledOut = rolledOutMetrics(taken, {
      weightsVersion,
      temperature: sampling.rollout_temperature,
      waitSeconds: watch.seconds("wait_for_batch"),
    });

    const groups_P = groupsOf(taken.trained_P, (rewards) => options.transformRewards?.(rewards, step));
    const batch = batchOf(groups_P, config);
    const lr = learningRate(config, { step, totalSteps });
    const updated = await watch.time("train", () => update(batch, lr, options).catch(inStep(step)));
    weightsVersion = await watch.time("update_weights", () => model.syncSampler());
    if (advanced.asynchronous) pipeline.published(step, weightsVersion);

    let validation: Metrics = {};
    if (isValidated(config) && isDue(checkpoints.eval_interval)) {
      const held = await watch.time("validation", () => pipeline.validate(step));
      if (held.type === "stopped") return failed(held.reason);
      validation = validationMetrics(held.rollouts, VALIDATION_TEMPERATURE);
    }

    const perf = watch.metrics(everyRollout(taken), batch);
    const metrics = finite({ ...rolledOut, ...updated, ...validation, ...perf });
    const done = pastStepOf(step, metrics);
    milestones.add(done);
    if (milestones.skippedUpdates() >= MAX_SKIPPED_UPDATES) return failed(noGradient(step));
    const enough = milestones.earlyStop();
    const isLast = step === totalSteps || enough !== undefined;
    const isBest = milestones.isBest();
    if (isLast || isDue(checkpoints.checkpoint_save_freq) || (isBest && done.validation_reward !== null)) {
      await ports.checkpoint({
        step,
        reward: done.validation_reward ?? done.reward,
        validationReward: done.validation_reward,
        isBest,
        isLast,
        method: advanced.method,
        saveWeights: (folder) => model.saveWeights(folder),
      });
    }
    await ports.commitStep({
      step,
      metrics,
      examples: everyRollout(taken).length,
      saveState: (folder) => model.saveState(folder),
    });
    ports.log({ level: "info", step: `step ${step}`, message: stepSummary(metrics, { step, totalSteps }) });
    if (enough !== undefined) return endedEarly(enough, ports.log);
  }
  return { status: "finished" };
}

/** Whoever cannot compute at the temperature of the rollouts says so before there are any. */
async function requireTemperature({ config, model, reference, teacher }: TrainRunOptions): Promise<void> {
  const temperature = { temperature: config.sampling.rollout_temperature };
  await model.forward([], { type: "importance_sampling" }, temperature);
  await reference?.logprobs([], temperature);
  await teacher?.logprobs([], temperature);
}

/** No call of a model may hold the run for ever. */
function withDeadlines(options: TrainRunOptions): TrainRunOptions {
  const { model, reference, teacher } = options;
  return {
    ...options,
    model: boundedModel(model, options),
    ...(reference !== undefined && { reference: boundedScorer(reference, options) }),
    ...(teacher !== undefined && { teacher: boundedScorer(teacher, options) }),
  };
}

/** What the trainer or the numbers have to say says in which step; what ends an attempt, and not the run, stays as it is. */
function inStep(step: number): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof OsmosisError) || error.constructor !== OsmosisError) throw error;
    const { code, message, hint } = error;
    const given = hint === undefined ? {} : { hint };
    throw new OsmosisError(code, `Step ${step}: ${message}`, { ...given, cause: error });
  };
}

function noGradient(step: number): string {
  return (
    `Step ${step}: the gradient was not finite in ${MAX_SKIPPED_UPDATES} updates in a row, so nothing is learned. The ` +
    "weights are those of the last update. Look for very large rewards or coefficients in [advanced], or lower [training].lr."
  );
}

function failed(error: string): RunEnd {
  return { status: "failed", error };
}

import type { LossSpec, TrainableModel } from "@osmosis/engine";
import type { DatasetRow, RolloutRecord, TrainingRunConfig } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { failureGuard, noneScored } from "../rollout/collect-rollouts.ts";
import type { RolloutServer } from "../rollout/server-client.ts";
import type { RunEnd, RunPorts } from "../run-ports.ts";
import { ADVANTAGES } from "./advantages.ts";
import { batchOf } from "./batch.ts";
import type { TrainingBatch } from "./batch.ts";
import { finite, rolloutMetrics, updateMetrics, validationMetrics } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import { learningRate, stepsOf } from "./schedule.ts";
import { VALIDATION_TEMPERATURE, groupsOf, trainingRollouts, validationRollouts } from "./step-rollouts.ts";
import { createStopwatch } from "./stopwatch.ts";

export type TrainPorts = RunPorts & {
  /** Commits a step; `saveState` writes into a folder everything that the next step depends on. */
  readonly commitStep: (commit: {
    readonly step: number;
    readonly metrics: Metrics;
    /** Training rollouts of the step, with and without a reward. */
    readonly examples: number;
    readonly saveState: (folder: string) => Promise<void>;
  }) => Promise<void>;
  /** Keeps the weights as a model; called before the commit of the same step, so possibly twice after a crash. */
  readonly checkpoint: (checkpoint: {
    readonly step: number;
    /** Validation reward if the step was validated, else the mean training reward. */
    readonly reward: number | null;
    readonly method: "lora" | "full";
    readonly saveWeights: (folder: string) => Promise<void>;
  }) => Promise<void>;
};

export type TrainRunOptions = {
  readonly runId: string;
  readonly config: Pick<TrainingRunConfig, "training" | "sampling" | "checkpoints" | "advanced">;
  /** The model with the state of the last committed step loaded. */
  readonly model: TrainableModel;
  /** It must sample from `model`. */
  readonly gateway: Gateway;
  readonly server: RolloutServer;
  /** All rows of the data set, in order. */
  readonly rows: readonly DatasetRow[];
  /** Rollouts that were recorded and belong to no committed step; they are not run again. */
  readonly recorded: readonly RolloutRecord[];
  /** 0 at the beginning; the run goes on with the step after it. */
  readonly committedSteps: number;
  readonly ports: TrainPorts;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Rollouts in flight at most. */
  readonly concurrency?: number;
  /** Changes the rewards that a step trains with, by group; for controls such as shuffled rewards. */
  readonly transformRewards?: (
    rewards_P_G: readonly (readonly (number | null)[])[],
    step: number,
  ) => (number | null)[][];
};

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
  const { advanced, checkpoints } = config;
  const totalSteps = stepsOf(config, rows.length);
  if (totalSteps === 0) return failed(`No row is left to train on: all ${rows.length} rows are held out.`);
  warnAboutSampling(options);
  const stopReason = failureGuard(advanced.max_consecutive_failures);
  let weightsVersion = await model.syncSampler();
  let scoredBefore = options.committedSteps > 0;

  for (let step = options.committedSteps + 1; step <= totalSteps; step++) {
    const watch = createStopwatch(clock);

    const collected = await watch.time("rollout", () => trainingRollouts({ ...options, step, stopReason }));
    if (collected.type === "stopped") return failed(collected.reason);
    const { rollouts, tasks } = collected;
    const nothing = scoredBefore ? undefined : noneScored(rollouts);
    if (nothing !== undefined) return failed(nothing);
    scoredBefore = true;

    const groups_P = groupsOf(tasks, rollouts, (rewards) => options.transformRewards?.(rewards, step));
    const sampled = rolloutMetrics(groups_P, {
      weightsVersion,
      temperature: config.sampling.rollout_temperature,
    });
    const batch = batchOf(groups_P, {
      advantage: ADVANTAGES[advanced.advantage],
      aggregation: advanced.aggregation,
    });
    const lr = learningRate(config, { step, totalSteps });
    const updated = await watch.time("train", () => update(batch, lr, options));
    weightsVersion = await watch.time("update_weights", () => model.syncSampler());

    const due = (every: number): boolean => every > 0 && (step % every === 0 || step === totalSteps);
    const validated = due(checkpoints.eval_interval)
      ? await watch.time("validation", () => validationRollouts({ ...options, step, stopReason }))
      : undefined;
    if (validated?.type === "stopped") return failed(validated.reason);
    const validation =
      validated === undefined ? {} : validationMetrics(validated.rollouts, VALIDATION_TEMPERATURE);

    const metrics = finite({ ...sampled, ...updated, ...validation, ...watch.metrics(rollouts, batch) });
    if (due(checkpoints.checkpoint_save_freq)) {
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
    ports.log({ level: "info", step: `step ${step}`, message: summary(metrics, { step, totalSteps }) });
  }
  return { status: "finished" };
}

function warnAboutSampling({ config, ports }: TrainRunOptions): void {
  if (config.sampling.rollout_top_p === 1) return;
  ports.log({
    level: "warning",
    step: "train",
    message:
      `rollout_top_p is ${config.sampling.rollout_top_p}: the trainer compares with the whole distribution, the sampler ` +
      "draws from a part of it, so ratios are biased. Use 1 unless you have a reason.",
  });
}

/** One gradient over the whole batch and one step of the optimiser; neither when there is nothing to learn from. */
async function update(
  batch: TrainingBatch,
  learningRate: number,
  { config, model, ports }: TrainRunOptions,
): Promise<Metrics> {
  const { advanced, sampling } = config;
  const counts = {
    "train/lr": learningRate,
    "train/groups_left_out": batch.groupsLeftOut,
    "train/rollouts_left_out": batch.rolloutsLeftOut,
  };
  if (batch.data_B.length === 0) return { ...counts, "train/updated": 0 };
  const loss = lossOf(advanced);
  const result = await model.forwardBackward(batch.data_B, loss, {
    temperature: sampling.rollout_temperature,
  });
  const { gradNorm, updated } = await model.optimStep({
    learningRate,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weightDecay: advanced.weight_decay,
    gradClipNorm: advanced.grad_clip_norm,
  });
  if (!updated) {
    ports.log({
      level: "warning",
      step: "train",
      message: "The gradient was not finite; the update was skipped.",
    });
  }
  return {
    ...counts,
    ...updateMetrics(batch, result, loss),
    "train/grad_norm": gradNorm,
    "train/updated": updated ? 1 : 0,
  };
}

function lossOf({ loss, clip_low, clip_high }: TrainingRunConfig["advanced"]): LossSpec {
  return loss === "importance_sampling"
    ? { type: loss }
    : { type: loss, clipLow: 1 - clip_low, clipHigh: 1 + clip_high };
}

function failed(error: string): RunEnd {
  return { status: "failed", error };
}

function summary(metrics: Metrics, { step, totalSteps }: { step: number; totalSteps: number }): string {
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

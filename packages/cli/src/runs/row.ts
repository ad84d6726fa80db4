import { attemptsOf, type EvalRun, type TrainingRun } from "@osmosis/protocol";

/** An evaluation run as `--json` lists it. */
export function evalRow(run: EvalRun): Record<string, unknown> {
  const { results, model, dataset, rollout, ...rest } = run;
  return {
    ...rest,
    model: model.name,
    dataset: dataset.name,
    rollout: rollout.name,
    results,
    summary: evalSummary(run),
  };
}

export function evalSummary(run: EvalRun): Record<string, unknown> {
  const { results } = run;
  if (results === null) return {};
  return {
    avg_reward: results.score,
    pass_rate: results.pass_rate,
    graded: results.graded,
    passed: results.passed,
    failed: results.failed,
    skipped: results.skipped,
    progress: {
      completed: results.total_runs,
      total: results.sampled_rows * attemptsOf(run),
      unit: "samples",
    },
  };
}

/** A training run as `--json` lists it. */
export function trainingRow(run: TrainingRun): Record<string, unknown> {
  const { model, dataset, rollout, ...rest } = run;
  return {
    ...rest,
    model_id: model.id,
    model_name: model.model_name,
    dataset_id: dataset.id,
    dataset_name: dataset.file_name,
    rollout_id: rollout.id,
    rollout_name: rollout.name,
    summary: trainingSummary(run),
  };
}

export function trainingSummary(run: TrainingRun): Record<string, unknown> {
  return {
    reward: run.reward,
    pass_rate: run.pass_rate,
    validation: run.validation,
    last_step: run.last_step,
    progress: { completed: run.current_step, total: run.total_steps, unit: "steps" },
  };
}

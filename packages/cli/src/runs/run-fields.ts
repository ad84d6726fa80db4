import type { EvalRun, LastStep, NewestValidation, TrainingRun } from "@osmosis/protocol";
import { formatCount, formatDuration, formatNumber, formatProportion, formatTime } from "../output/format.ts";
import type { Field } from "../output/result.ts";

/** What a person wants to know about an evaluation: every rate with its n and its temperature. */
export function evalFields(run: EvalRun): Field[] {
  const { results } = run;
  const common: Field[] = [
    ["Status", run.error === null ? run.status : `${run.status}: ${run.error}`],
    ["Model", run.model.name],
    ["Data set", run.dataset.name],
    ["Rollout", run.rollout.name],
    ["Time", timesOf(run)],
  ];
  if (results === null) return [...common, ["View", run.platform_url]];
  const temperature = results.temperature === null ? "the agent's own" : String(results.temperature);
  return [
    ...common,
    [
      "Pass rate",
      results.pass_rate_ci === null
        ? formatNumber(results.graded === 0 ? null : results.pass_rate)
        : formatProportion(results.pass_rate_ci),
    ],
    [
      "Mean reward",
      results.score_ci === null ? formatNumber(results.score) : formatProportion(results.score_ci),
    ],
    ...Object.entries(results.components).map(([name, { mean, n }]): Field => [
      name,
      `${formatNumber(mean)} (n=${formatCount(n)})`,
    ]),
    ["Temperature", temperature],
    ["Passed", `${results.passed} of ${results.graded} graded (threshold ${results.pass_threshold})`],
    ["Rows", `${formatCount(results.sampled_rows)} of ${formatCount(results.total_dataset_rows)}`],
    ["Outcomes", outcomeText(results.outcomes)],
    ["Tokens", formatCount(results.total_tokens)],
    ...results.warnings.map((warning): Field => ["Warning", warning]),
    ["View", run.platform_url],
  ];
}

export function trainingFields(run: TrainingRun): Field[] {
  return [
    ["Status", run.error === null ? run.status : `${run.status}: ${run.error}`],
    ["Model", run.model.name],
    ["Data set", run.dataset.name],
    ["Rollout", run.rollout.name],
    ["Time", timesOf(run)],
    ["Step", `${run.current_step} of ${run.total_steps ?? "?"}`],
    ["Validation", run.validation === null ? "none yet" : validationText(run.validation)],
    ["Last step", run.last_step === null ? "–" : lastStepText(run.last_step)],
    ["Examples", formatCount(run.examples_processed_count)],
    ["View", run.platform_url],
  ];
}

/** The held-out rows: what a run is judged by. */
function validationText({ step, reward, pass_rate: rate, temperature }: NewestValidation): string {
  const sampled = temperature === 0 ? "greedy" : `temperature ${temperature}`;
  const interval = `95 % ${formatNumber(rate.ci_low)}–${formatNumber(rate.ci_high)}`;
  return (
    `pass rate ${formatNumber(rate.value)} (n = ${rate.n}, ${interval}, ${sampled}), ` +
    `reward ${formatNumber(reward)}, after step ${step}`
  );
}

/** One batch of the rows that are trained on: it jumps from step to step. */
function lastStepText(last: LastStep): string {
  const { prompts, rollouts_per_prompt: perPrompt, n, temperature } = last;
  return (
    `pass rate ${formatNumber(last.pass_rate)} (n = ${n}, ${prompts} prompts × ${perPrompt}, ` +
    `temperature ${temperature}), reward ${formatNumber(last.reward)}, training rows`
  );
}

function timesOf(run: EvalRun | TrainingRun): string {
  const { created_at: created, started_at: start, completed_at: end } = run;
  if (start === null) return `submitted ${formatTime(created)}`;
  if (end === null) return `since ${formatTime(start)}`;
  return `${formatTime(start)}, took ${formatDuration(Date.parse(end) - Date.parse(start))}`;
}

function outcomeText(outcomes: Readonly<Record<string, number | undefined>>): string {
  const text = Object.entries(outcomes)
    .map(([outcome, count]) => `${count} ${outcome}`)
    .join(", ");
  return text === "" ? "–" : text;
}

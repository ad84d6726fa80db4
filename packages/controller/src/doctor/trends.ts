import { lastSteps, mean, type Rule, type RunHistory } from "./run-history.ts";
import * as limits from "./thresholds.ts";

/** The least-squares slope of values at 0, 1, 2 …, and how many of its standard errors it is from 0. */
export function slopeOf(values: readonly number[]): { readonly slope: number; readonly t: number } {
  const n = values.length;
  const [centre, average] = [(n - 1) / 2, mean(values)];
  let [xx, xy] = [0, 0];
  for (const [x, y] of values.entries()) {
    xx += (x - centre) ** 2;
    xy += (x - centre) * (y - average);
  }
  const slope = xy / xx;
  const residual = values.reduce((sum, y, x) => sum + (y - average - slope * (x - centre)) ** 2, 0);
  const error = Math.sqrt(residual / (n - 2) / xx);
  // Values on a line have no error: it rises, falls or is level for certain.
  return { slope, t: slope === 0 ? 0 : error === 0 ? Math.sign(slope) * 1e6 : slope / error };
}

/** Held-out rows get worse while the trained ones get better: the policy learns the rows by heart, or games the grader. */
export function validationFall(history: RunHistory): ReturnType<Rule["check"]> {
  const validated = history.steps.filter(({ metrics }) => metrics["eval/validation/pass_rate"] !== undefined);
  if (validated.length < limits.VALIDATION_LEAST) return undefined;
  const rateOf = (at: (typeof validated)[number]): number => at.metrics["eval/validation/pass_rate"] ?? 0;
  const best = validated.reduce((most, one) => (rateOf(one) > rateOf(most) ? one : most));
  const [before, last] = validated.slice(-2);
  if (before === undefined || last === undefined || best.step >= before.step) return undefined;
  const n = last.metrics["eval/validation/n"] ?? 0;
  const spread = [best, last].map((one) => rateOf(one) * (1 - rateOf(one))).reduce((sum, one) => sum + one);
  const error = Math.sqrt(spread / Math.max(1, n));
  const fall = rateOf(best) - Math.max(rateOf(before), rateOf(last));
  const trained = rewardAround(history, last.step) - rewardAround(history, best.step);
  if (!(fall > limits.VALIDATION_FALL_ERRORS * error && trained > 0)) return undefined;
  return {
    title: "Validation falls while training rises",
    evidence: `The pass rate of the held-out rows was ${rateOf(best).toFixed(3)} after step ${best.step} and is ${rateOf(last).toFixed(3)} after step ${last.step} (n = ${n}; both last validations are more than ${limits.VALIDATION_FALL_ERRORS} standard errors of ${error.toFixed(3)} below), while the training reward rose by ${trained.toFixed(3)}.`,
    values: { best: rateOf(best), best_step: best.step, last: rateOf(last), n, training_rise: trained },
    steps: { first: best.step, last: lastSteps(history, 1)?.last ?? last.step },
    what_to_do: `Take the checkpoint nearest to step ${best.step}. Add rows, lower lr or total_epochs, and read rollouts with a high reward: do they solve the task, or please the grader?`,
    rollouts: [],
  };
}

function rewardAround({ steps }: RunHistory, step: number): number {
  const near = steps.filter((one) => Math.abs(one.step - step) <= 2);
  return mean(near.flatMap(({ metrics }) => metrics["rollout/raw_reward"] ?? []));
}

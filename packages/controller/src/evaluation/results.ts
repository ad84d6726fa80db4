import { MAX_METRICS, isInfrastructureFailure } from "@osmosis/protocol";
import type { EvalResults, OutcomeCounts, RolloutOutcome, RolloutRecord } from "@osmosis/protocol";
import { meanInterval, passAtK, quantile, shareInterval } from "./statistics.ts";
import type { Clustered } from "./statistics.ts";

/** The part of a rollout record that statistics read. */
export type EvaluatedRollout = Pick<
  RolloutRecord,
  | "row_index"
  | "sample_index"
  | "outcome"
  | "reward"
  | "prompt_tokens"
  | "completion_tokens"
  | "model_calls"
  | "metrics"
>;

export type EvaluationFacts = {
  /** Smallest reward that passes. */
  readonly passThreshold: number;
  readonly sampledRows: number;
  readonly totalDatasetRows: number;
  /** Null for a hosted provider, whose own default holds. */
  readonly temperature: number | null;
};

/**
 * True when the rollout says nothing about the model, so that no rate counts it: its infrastructure failed, or somebody
 * ended it.
 */
export function isSkipped(outcome: RolloutOutcome): boolean {
  return isInfrastructureFailure(outcome) || outcome === "cancelled";
}

/**
 * What an evaluation says, so far or at its end. Pure: the order of the rollouts does not matter.
 *
 * - `pass_rate` is passes by rollouts that were not skipped, those without a reward included; its interval is Wilson's.
 * - `score` is the mean reward over the graded rollouts. Where all rewards are 0 or 1 it is a share, and its interval is
 *   Wilson's, too; else it is Student's t around the mean, which knows nothing of the ends of the grader's scale. None
 *   below two rows.
 * - Both intervals take the attempts at one row as a cluster, so that many attempts at few rows do not feign precision.
 * - `reward_stats.std` is the population's.
 * - `components` are the means of the grader's metrics, over the graded rollouts that have them.
 * - `pass_at_k` is the unbiased estimate of arXiv 2107.03374 for k = 1, 2, 4 …, each over the rows with k attempts that
 *   were not skipped; absent when no row has two.
 */
export function evaluationResults(
  rollouts: readonly EvaluatedRollout[],
  facts: EvaluationFacts,
): EvalResults {
  const counted = rollouts.filter(({ outcome }) => !isSkipped(outcome));
  const graded = counted.flatMap(({ row_index, reward }) => (reward === null ? [] : [{ row_index, reward }]));
  const rewards = graded.map(({ reward }) => reward).sort((a, b) => a - b);
  const passes = (reward: number | null): boolean => reward !== null && reward >= facts.passThreshold;
  const passed = rewards.filter(passes).length;
  const score = rewards.length === 0 ? null : mean(rewards);
  return {
    score,
    score_ci: scoreInterval(graded.map(({ row_index, reward }) => ({ cluster: row_index, value: reward }))),
    pass_rate: counted.length === 0 ? 0 : passed / counted.length,
    pass_rate_ci: shareInterval(
      counted.map(({ row_index, reward }) => ({ cluster: row_index, value: passes(reward) ? 1 : 0 })),
    ),
    temperature: facts.temperature,
    pass_threshold: facts.passThreshold,
    graded: graded.length,
    passed,
    failed: counted.length - graded.length,
    skipped: rollouts.length - counted.length,
    total_runs: rollouts.length,
    sampled_rows: facts.sampledRows,
    total_dataset_rows: facts.totalDatasetRows,
    total_tokens: rollouts.reduce(
      (sum, { prompt_tokens, completion_tokens }) => sum + prompt_tokens + completion_tokens,
      0,
    ),
    outcomes: outcomeCounts(rollouts),
    reward_stats:
      score === null
        ? null
        : {
            mean: score,
            std: Math.sqrt(mean(rewards.map((reward) => (reward - score) ** 2))),
            min: quantile(rewards, 0),
            median: quantile(rewards, 0.5),
            max: quantile(rewards, 1),
            ...passAtKByRow(counted, passes),
          },
    components: componentsOf(counted),
    warnings: warningsOf(counted),
  };
}

/** An agent that works without the model is a mistake more often than a plan, and its rewards look like any others. */
function warningsOf(rollouts: readonly EvaluatedRollout[]): string[] {
  const graded = rollouts.filter(({ reward }) => reward !== null);
  const silent = graded.filter(({ model_calls }) => model_calls === 0).length;
  const named = new Set(graded.flatMap(({ metrics }) => Object.keys(metrics))).size;
  return [
    ...(silent === 0
      ? []
      : [
          `In ${silent} of ${graded.length} graded rollouts the model answered no call, so their rewards say nothing about it: ` +
            "the workflow does not call the model that it is given, or each of its calls was refused.",
        ]),
    ...(named <= MAX_METRICS
      ? []
      : [
          `The rollouts gave ${named} metrics of different names, and the ${MAX_METRICS} that most of them have are shown: ` +
            "a metric has one name in all rollouts.",
        ]),
  ];
}

function componentsOf(rollouts: readonly EvaluatedRollout[]): EvalResults["components"] {
  return Object.fromEntries(
    [...metricValues(rollouts)].map(([name, given]) => [name, { mean: mean(given), n: given.length }]),
  );
}

/**
 * What workflow or grader gave beside the reward, by name: a value of each rewarded rollout that has it. Of very many names
 * those that most have, since each becomes a curve.
 */
export function metricValues(
  rollouts: readonly Pick<RolloutRecord, "reward" | "metrics">[],
): ReadonlyMap<string, readonly number[]> {
  const values = new Map<string, number[]>();
  for (const { reward, metrics } of rollouts) {
    if (reward === null) continue;
    for (const [name, value] of Object.entries(metrics)) {
      const known = values.get(name);
      if (known === undefined) values.set(name, [value]);
      else known.push(value);
    }
  }
  if (values.size <= MAX_METRICS) return values;
  const byCount = [...values].toSorted(([a, inA], [b, inB]) => inB.length - inA.length || (a < b ? -1 : 1));
  return new Map(byCount.slice(0, MAX_METRICS));
}

function scoreInterval(rewards: Clustered): EvalResults["score_ci"] {
  if (new Set(rewards.map(({ cluster }) => cluster)).size < 2) return null;
  // Student's interval around 198 of 200 would end above 1, and around 200 of 200 it would have no width.
  const isShare = rewards.every(({ value }) => value === 0 || value === 1);
  return isShare ? shareInterval(rewards) : meanInterval(rewards);
}

function outcomeCounts(rollouts: readonly EvaluatedRollout[]): OutcomeCounts {
  const counts: OutcomeCounts = {};
  for (const { outcome } of rollouts) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return counts;
}

function passAtKByRow(
  counted: readonly EvaluatedRollout[],
  passes: (reward: number | null) => boolean,
): { pass_at_k?: Record<string, number> } {
  const rows = new Map<number, { attempts: number; passes: number }>();
  for (const { row_index, reward } of counted) {
    const row = rows.get(row_index) ?? { attempts: 0, passes: 0 };
    row.attempts += 1;
    if (passes(reward)) row.passes += 1;
    rows.set(row_index, row);
  }
  const most = [...rows.values()].reduce((largest, { attempts }) => Math.max(largest, attempts), 0);
  if (most < 2) return {};
  const pass_at_k: Record<string, number> = {};
  for (let k = 1; k <= most; k *= 2) {
    const enough = [...rows.values()].filter(({ attempts }) => attempts >= k);
    pass_at_k[String(k)] = mean(enough.map((row) => passAtK(row.attempts, row.passes, k)));
  }
  return { pass_at_k };
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

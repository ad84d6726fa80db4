import { METRICS, type MetricDefinition } from "./metric-definitions.ts";

/** What to look at first when runs are compared. */
export const KEY_METRICS: readonly string[] = [
  "rollout/raw_reward",
  "rollout/pass_rate",
  "eval/validation/reward",
  "eval/validation/pass_rate",
  "train/entropy_loss",
  "train/grad_norm",
  "train/train_rollout_kl",
  "rollout/response_lengths",
  "rollout/truncated_ratio",
  "rollout/errored_ratio",
  "rollout/group/all_same",
  "perf/step_time",
];

/** The definition that a key falls under; undefined for a key that no step of ours commits. */
export function metricDefinition(key: string): MetricDefinition | undefined {
  return BY_KEY.get(key) ?? PATTERNS.find(({ pattern }) => pattern.test(key))?.metric;
}

const BY_KEY = new Map(METRICS.map((metric) => [metric.key, metric]));
const PATTERNS = METRICS.filter(({ key }) => key.includes("<")).map((metric) => ({
  metric,
  pattern: new RegExp(`^${metric.key.replaceAll(/<\w+>/g, "[^/]+")}$`),
}));

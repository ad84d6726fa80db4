import type { RolloutRecord } from "@osmosis/protocol";
import { isSkipped } from "../evaluation/results.ts";
import { behaviourMetrics } from "./behaviour-metrics.ts";
import type { Group } from "./batch.ts";

/** Names and values of a step's curves; values are finite. */
export type Metrics = Readonly<Record<string, number>>;

/** Smallest reward that counts as a pass in training, where no threshold is configured. */
export const PASS_THRESHOLD = 1;

/** What the rollouts of a step say. Means are over rewarded rollouts; a curve without a value is left out. */
export function rolloutMetrics(groups_P: readonly Group[], facts: { readonly temperature: number }): Metrics {
  const rollouts = groups_P.flatMap(({ rollouts_G }) => rollouts_G);
  const rewards = rollouts.flatMap(({ reward }) => (reward === null ? [] : [reward]));
  const sampled = rollouts.filter(({ completion_tokens }) => completion_tokens > 0);
  return finite({
    ...rewardMetrics(rewards),
    "rollout/pass_rate": passRate(rollouts),
    "rollout/n": counted(rollouts).length,
    "rollout/scored": rewards.length,
    "rollout/temperature": facts.temperature,
    ...groupMetrics(groups_P),
    ...outcomeMetrics(rollouts),
    ...behaviourMetrics(rollouts, passes),
    "rollout/response_lengths": mean(sampled.map(({ completion_tokens }) => completion_tokens)),
    "rollout/response_len/max": largest(sampled.map(({ completion_tokens }) => completion_tokens)),
    "rollout/total_lengths": mean(sampled.map(totalLength)),
    "rollout/truncated_ratio": mean(rollouts.map(({ outcome }) => (outcome === "truncated" ? 1 : 0))),
    "rollout/model_calls": mean(rollouts.map(({ model_calls }) => model_calls)),
    "rollout/prefix_breaks": sum(rollouts.map(({ prefix_breaks }) => prefix_breaks)),
    "rollout/duration_seconds/mean": mean(rollouts.map(({ duration_ms }) => duration_ms / 1000)),
    "rollout/duration_seconds/max": largest(rollouts.map(({ duration_ms }) => duration_ms / 1000)),
  });
}

function rewardMetrics(rewards: readonly number[]): Record<string, number> {
  const average = mean(rewards);
  return {
    "rollout/raw_reward": average,
    "rollout/reward_std": Math.sqrt(mean(rewards.map((reward) => (reward - average) ** 2))),
    "rollout/reward_min": -largest(rewards.map((reward) => -reward)),
    "rollout/reward_max": largest(rewards),
  };
}

/** As an evaluation counts it: a rollout without a reward has not passed. */
function passRate(rollouts: readonly RolloutRecord[]): number {
  return mean(counted(rollouts).map(({ reward }) => (reward !== null && passes(reward) ? 1 : 0)));
}

/** The denominator of a pass rate, which is shown as its n. */
function counted(rollouts: readonly RolloutRecord[]): readonly RolloutRecord[] {
  return rollouts.filter(({ outcome }) => !isSkipped(outcome));
}

function passes(reward: number): boolean {
  return reward >= PASS_THRESHOLD;
}

/** Shares of the groups with at least one reward: what they can still teach, and why not. */
function groupMetrics(groups_P: readonly Group[]): Record<string, number> {
  const rewards_P_G = groups_P
    .map(({ rollouts_G }) => rollouts_G.flatMap(({ reward }) => (reward === null ? [] : [reward])))
    .filter((rewards_G) => rewards_G.length > 0);
  const share = (test: (rewards_G: readonly number[]) => boolean): number =>
    mean(rewards_P_G.map((rewards_G) => (test(rewards_G) ? 1 : 0)));
  return {
    "rollout/group/all_same": share((rewards_G) => new Set(rewards_G).size === 1),
    "rollout/group/all_good": share((rewards_G) => rewards_G.every(passes)),
    "rollout/group/all_bad": share((rewards_G) => !rewards_G.some(passes)),
    "rollout/group/mixed": share((rewards_G) => rewards_G.some(passes) && !rewards_G.every(passes)),
  };
}

function outcomeMetrics(rollouts: readonly RolloutRecord[]): Record<string, number> {
  const counts: Record<string, number> = { "rollout/outcome/ok": 0 };
  for (const { outcome } of rollouts) {
    const key = `rollout/outcome/${outcome}`;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

function totalLength({ sequences }: RolloutRecord): number {
  return sum(sequences.map(({ tokens }) => tokens.length));
}

/** What the held-out rows say about the weights after a step. */
export function validationMetrics(rollouts: readonly RolloutRecord[], temperature: number): Metrics {
  const rewards = rollouts.flatMap(({ reward }) => (reward === null ? [] : [reward]));
  return finite({
    "eval/validation/reward": mean(rewards),
    "eval/validation/pass_rate": passRate(rollouts),
    "eval/validation/n": counted(rollouts).length,
    "eval/validation/scored": rewards.length,
    "eval/validation/temperature": temperature,
  });
}

/** The metrics without those that have no value: a mean of nothing, a maximum of nothing. */
export function finite(metrics: Readonly<Record<string, number>>): Metrics {
  return Object.fromEntries(Object.entries(metrics).filter(([, value]) => Number.isFinite(value)));
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** A call with a step's rollouts as arguments would exceed the engine's limit. */
function largest(values: readonly number[]): number {
  return values.reduce((most, value) => Math.max(most, value), -Infinity);
}

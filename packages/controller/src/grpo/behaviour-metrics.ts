import { isScored, type RolloutRecord } from "@osmosis/protocol";

/** What the policy did, and what went wrong; values without a rollout behind them are not finite. */
export function behaviourMetrics(
  rollouts: readonly RolloutRecord[],
  passes: (reward: number) => boolean,
): Record<string, number> {
  const sampled = rollouts.filter(({ completion_tokens }) => completion_tokens > 0);
  const lengthsWhere = (wanted: boolean): number[] =>
    sampled.flatMap(({ reward, completion_tokens }) =>
      reward !== null && passes(reward) === wanted ? [completion_tokens] : [],
    );
  const notCancelled = rollouts.filter(({ outcome }) => outcome !== "cancelled");
  return {
    "rollout/response_len/passed": mean(lengthsWhere(true)),
    "rollout/response_len/failed": mean(lengthsWhere(false)),
    "rollout/prompt_len": mean(sampled.map(({ prompt_tokens }) => prompt_tokens)),
    "rollout/turns": mean(sampled.map(({ messages }) => messages.filter(isAnswer).length)),
    "rollout/tool_calls": mean(sampled.map(({ messages }) => sum(messages.map(toolCallsOf)))),
    "rollout/errored_ratio": mean(notCancelled.map(({ outcome }) => (isScored(outcome) ? 0 : 1))),
    "rollout/empty": rollouts.length - sampled.length,
  };
}

type Message = RolloutRecord["messages"][number];

function isAnswer({ role }: Message): boolean {
  return role === "assistant";
}

function toolCallsOf({ tool_calls: calls }: Message): number {
  return Array.isArray(calls) ? calls.length : 0;
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

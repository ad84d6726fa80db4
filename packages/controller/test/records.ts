import type { RolloutRecord, TokenSequence } from "@osmosis/protocol";

/** A sequence with one prompt token and so many sampled ones. */
export function sequenceOf(sampled: number, logprob = -1): TokenSequence {
  const ones = Array.from({ length: sampled }, () => 1 as const);
  return {
    tokens: [5, ...ones.map((_, index) => index + 10)],
    mask: [0, ...ones],
    logprobs: [0, ...ones.map(() => logprob)],
  };
}

/** A rollout that went well, but for what is given. */
export function recordOf(changes: Partial<RolloutRecord> = {}): RolloutRecord {
  return {
    rollout_id: "r",
    phase: "train",
    step: 1,
    row_index: 0,
    sample_index: 0,
    outcome: "ok",
    reward: 1,
    error: null,
    label: null,
    messages: [],
    metrics: {},
    sequences: [sequenceOf(2)],
    weights_version_min: 0,
    weights_version_max: 0,
    prompt_tokens: 10,
    completion_tokens: 2,
    model_calls: 1,
    prefix_breaks: 0,
    duration_ms: 100,
    trajectory: null,
    ...changes,
  };
}

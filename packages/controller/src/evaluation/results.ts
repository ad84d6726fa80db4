import type { EvalResults, RolloutRecord } from "@osmosis/protocol";

/** The part of a rollout record that statistics read. */
export type EvaluatedRollout = Pick<
  RolloutRecord,
  "row_index" | "sample_index" | "outcome" | "reward" | "prompt_tokens" | "completion_tokens"
>;

export type EvaluationFacts = {
  /** Smallest reward that passes. */
  readonly passThreshold: number;
  /** Attempts per row that were asked for. */
  readonly attempts: number;
  readonly sampledRows: number;
  readonly totalDatasetRows: number;
  /** Null for a hosted provider, whose own default holds. */
  readonly temperature: number | null;
};

/** What an evaluation says, so far or at its end. Pure: the order of the rollouts does not matter. */
export function evaluationResults(
  rollouts: readonly EvaluatedRollout[],
  facts: EvaluationFacts,
): EvalResults {
  throw new Error(`not yet: ${rollouts.length} ${facts.attempts}`);
}

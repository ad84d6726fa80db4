/**
 * Numbers that have left the range of floats end a run, before anything is made of them that is kept: no weights that give
 * them are sampled from, saved as a state or as a checkpoint. Curves would only leave them out.
 */
import type { Datum, ForwardOptions, TrainableModel } from "@osmosis/engine";
import { OsmosisError } from "@osmosis/protocol";

/** A gradient that is not finite is skipped and changes nothing; so many in a row will not become better. */
export const MAX_SKIPPED_UPDATES = 3;

const LOWER_THE_RATE =
  "Lower [training].lr, keep [advanced].grad_clip_norm above 0, and begin with an earlier checkpoint as model_path; " +
  "those that the run has kept are whole.";

/**
 * @param whose - "the model", "the teacher" or "the reference"
 * @throws OsmosisError `RUN_FAILED` where the log probability of a token that counts is not finite.
 */
export function requireFiniteLogprobs(
  whose: string,
  data_B: readonly Datum[],
  logprobs_B_T: readonly ArrayLike<number>[],
): void {
  const found = firstBroken(data_B, logprobs_B_T);
  if (found === undefined) return;
  throw new OsmosisError(
    "RUN_FAILED",
    `A log probability of ${whose} is ${found}: its weights are unusable.`,
    {
      hint: LOWER_THE_RATE,
    },
  );
}

/**
 * Asks the model for the shortest sequence of the batch, with the weights that an update has just given it.
 *
 * @throws OsmosisError `RUN_FAILED` when it knows no answer any more.
 */
export async function requireUsable(
  model: Pick<TrainableModel, "forward">,
  data_B: readonly Datum[],
  { learningRate, ...options }: ForwardOptions & { readonly learningRate: number },
): Promise<void> {
  const shortest = data_B.toSorted((a, b) => a.tokens_T.length - b.tokens_T.length).slice(0, 1);
  const { logprobs_B_T } = await model.forward(shortest, { type: "importance_sampling" }, options);
  const found = firstBroken(shortest, logprobs_B_T);
  if (found === undefined) return;
  throw new OsmosisError(
    "RUN_FAILED",
    `Training has diverged: after the update with learning rate ${learningRate} a log probability of the model is ${found}.`,
    { hint: LOWER_THE_RATE },
  );
}

function firstBroken(
  data_B: readonly Datum[],
  logprobs_B_T: readonly ArrayLike<number>[],
): number | undefined {
  for (const [b, { weights_T }] of data_B.entries()) {
    for (const [t, weight] of weights_T.entries()) {
      const logprob = logprobs_B_T[b]?.[t] ?? 0;
      if (t > 0 && weight !== 0 && !Number.isFinite(logprob)) return logprob;
    }
  }
  return undefined;
}

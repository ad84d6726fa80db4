/**
 * How a trainer turns the losses of tokens into the gradient of a step. Tinker sums them, others average, each in its own
 * way; the same numbers sent to both would train differently. So the convention is measured, and what is sent is scaled
 * such that the gradient is the plain sum of `weights_T` times losses, which is what `TrainableModel` promises.
 */
import { OsmosisError } from "@osmosis/protocol";
import type { AdamParams, Datum, TrainableModel } from "../service.ts";

/**
 * `sum` over all tokens; `batch_mean`: divided by the number of sequences; `sequence_mean`: each sequence divided by the
 * number of its tokens, too; `token_mean`: divided by the number of all tokens. A sequence of T ids has T - 1 tokens that
 * are predicted, and all of them count, whether they carry a loss or not.
 */
export const REDUCTIONS = ["sum", "batch_mean", "sequence_mean", "token_mean"] as const;
export type Reduction = (typeof REDUCTIONS)[number];

export type Convention = {
  readonly reduction: Reduction;
  /** Whether an average is over all calls since the last step of the optimiser, or of each call by itself. */
  readonly average: "step" | "call";
  /** Whether `gradClipNorm` has an effect; undefined where it was not measured. */
  readonly clips: boolean | undefined;
};

/** What to multiply a datum's weights with, so that the average over `average_B` is the sum. */
export function scaleOf(
  reduction: Reduction,
  datum: Pick<Datum, "tokens_T">,
  average_B: readonly Pick<Datum, "tokens_T">[],
): number {
  if (reduction === "sum") return 1;
  if (reduction === "batch_mean") return average_B.length;
  if (reduction === "sequence_mean") return average_B.length * targetsOf(datum);
  return average_B.reduce((total, one) => total + targetsOf(one), 0);
}

function targetsOf({ tokens_T }: Pick<Datum, "tokens_T">): number {
  return tokens_T.length - 1;
}

/** Tokens that every vocabulary has. */
const SHORT = [1, 2];
const LONG = [1, 2, 3, 4, 5];

/** No memory, so that one measurement does not reach the next, and no effect. */
const MEASURE: AdamParams = {
  learningRate: 0,
  beta1: 0,
  beta2: 0,
  epsilon: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};

/** Gradient norms relative to that of a single token, by what they are measured with. */
type Norms = { readonly twice: number; readonly padded: number; readonly beside: number };

const EXPECTED: Readonly<Record<Reduction, Norms>> = {
  sum: { twice: 2, padded: 1, beside: 1 },
  batch_mean: { twice: 1, padded: 1, beside: 1 / 2 },
  sequence_mean: { twice: 1, padded: 1 / 4, beside: 1 / 2 },
  token_mean: { twice: 1, padded: 1 / 4, beside: 1 / 5 },
};

/** Servers compute in 16 bits, too; the expectations lie further apart. */
const TOLERANCE = 0.15;

/**
 * Measures the convention on a model that nobody needs, which sends what it is given as it is. Its weights are changed at
 * the very end.
 *
 * @returns undefined when the trainer tells no gradient norm.
 * @throws OsmosisError `VALIDATION` for a trainer whose gradients follow none of the conventions.
 */
export async function measureConvention(scratch: TrainableModel): Promise<Convention | undefined> {
  const [seen] = (await scratch.forward([datumOf(SHORT, 0, 1)], { type: "importance_sampling" }))
    .logprobs_B_T;
  const logprob = seen?.[1] ?? 0;
  const token = datumOf(SHORT, logprob, 1);
  const idle = datumOf(LONG, 0, 0);
  const norm = async (...calls: readonly (readonly Datum[])[]): Promise<number> => {
    for (const data_B of calls) await scratch.forwardBackward(data_B, { type: "importance_sampling" });
    return (await scratch.optimStep(MEASURE)).gradNorm;
  };
  const one = await norm([token]);
  if (!Number.isFinite(one) || one <= 0) return undefined;
  const norms: Norms = {
    twice: (await norm([token, token])) / one,
    padded: (await norm([datumOf(LONG, logprob, 1)])) / one,
    beside: (await norm([token, idle])) / one,
  };
  const reduction = REDUCTIONS.find((name) => {
    const expected = EXPECTED[name];
    return (["twice", "padded", "beside"] as const).every((key) => isNear(norms[key], expected[key]));
  });
  if (reduction === undefined) {
    throw new OsmosisError(
      "VALIDATION",
      "The trainer's gradients are neither a sum nor a known average over the tokens: " +
        `relative to one token, the same token twice gives ${norms.twice.toFixed(3)}, one followed by three others ` +
        `${norms.padded.toFixed(3)}, one beside a sequence of four ${norms.beside.toFixed(3)}.`,
      { hint: `If you know better, set [advanced].trainer_reduction to one of ${REDUCTIONS.join(", ")}.` },
    );
  }
  const twoCalls = reduction === "sum" ? 2 : (await norm([token], [token])) / one;
  return {
    reduction,
    average: isNear(twoCalls, 2) ? "call" : "step",
    clips: await clips(scratch, token),
  };
}

/** A step with a gradient that is clipped to nothing leaves the weights alone, if it is clipped. */
async function clips(scratch: TrainableModel, token: Datum): Promise<boolean> {
  const logprob = async () =>
    (await scratch.forward([token], { type: "importance_sampling" })).logprobs_B_T[0]?.[1] ?? 0;
  const before = await logprob();
  await scratch.forwardBackward([{ ...token, advantages_T: [0, 1000] }], { type: "importance_sampling" });
  await scratch.optimStep({ ...MEASURE, learningRate: 0.1, epsilon: 1, gradClipNorm: 1e-7 });
  return Math.abs((await logprob()) - before) < 1e-4;
}

function datumOf(tokens_T: readonly number[], logprob: number, advantage: number): Datum {
  const first = (value: number) => tokens_T.map((_, t) => (t === 1 ? value : 0));
  return {
    tokens_T,
    weights_T: first(1),
    advantages_T: first(advantage),
    samplerLogprobs_T: first(logprob),
  };
}

function isNear(value: number, expected: number): boolean {
  return Math.abs(value / expected - 1) < TOLERANCE;
}

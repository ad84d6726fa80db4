/** Between the data of the wire and those of the engine. */
import type { Datum, ForwardBackwardResult, LossSpec } from "@osmosis/engine";
import {
  OsmosisError,
  type TinkerDatum,
  type TinkerForwardBackward,
  type TinkerForwardBackwardOutput,
  type TinkerTensor,
} from "@osmosis/protocol";

/** Absolute bounds of the probability ratio where a request names none. */
const DEFAULT_BOUNDS = { ppo: [0.8, 1.2], cispo: [0, 4] } as const;

/** `temperature`, which is ours, divides the logits: the log probabilities are those that were sampled from. */
export type WireLoss = { readonly loss: LossSpec; readonly temperature: number };

/** @throws OsmosisError `VALIDATION` for an unknown loss, or a setting that it does not have. */
export function lossOf(
  name: string,
  config: TinkerForwardBackward["forward_backward_input"]["loss_fn_config"],
): WireLoss {
  const { temperature = 1, clip_low_threshold: low, clip_high_threshold: high, ...others } = config ?? {};
  const isClipped = name === "ppo" || name === "cispo";
  if (!isClipped && name !== "cross_entropy" && name !== "importance_sampling") {
    throw new OsmosisError("VALIDATION", `There is no loss ${name}.`, {
      hint: "There are cross_entropy, importance_sampling, ppo and cispo.",
    });
  }
  const clipSettings = [
    low !== undefined && "clip_low_threshold",
    high !== undefined && "clip_high_threshold",
  ];
  const unknown = [...Object.keys(others), ...(isClipped ? [] : clipSettings.filter((one) => one !== false))];
  if (unknown.length > 0) {
    throw new OsmosisError("VALIDATION", `The loss ${name} has no setting ${unknown.join(", ")}.`);
  }
  if (typeof temperature !== "number" || !(temperature > 0)) {
    throw new OsmosisError("VALIDATION", `temperature is ${temperature}, not a number above 0.`);
  }
  if (!isClipped) return { loss: { type: name }, temperature };
  const [defaultLow, defaultHigh] = DEFAULT_BOUNDS[name];
  if (typeof low === "string" || typeof high === "string") {
    throw new OsmosisError("VALIDATION", "Clip thresholds are numbers.");
  }
  return {
    loss: { type: name, clipLow: low ?? defaultLow, clipHigh: high ?? defaultHigh },
    temperature,
  };
}

/**
 * A datum of the engine: the wire predicts `target_tokens[i]` after `model_input[i]`, the engine the token at position
 * i + 1 of one sequence. So targets have to be the next tokens wherever they carry a loss.
 *
 * @throws OsmosisError `VALIDATION`, naming the datum.
 */
export function datumOf(datum: TinkerDatum, index: number, loss: LossSpec): Datum {
  const input = datum.model_input.chunks.flatMap(({ tokens }) => tokens);
  const length = input.length;
  const column = (name: string, fallback?: number): readonly number[] => {
    const tensor = datum.loss_fn_inputs[name];
    if (tensor === undefined) {
      if (fallback !== undefined) return Array.from({ length }, () => fallback);
      throw refused(index, `${loss.type} needs ${name}`);
    }
    if (tensor.data.length !== length) {
      throw refused(index, `${name} has ${tensor.data.length} entries for ${length} tokens of model_input`);
    }
    return tensor.data;
  };
  const targets = column("target_tokens");
  const isSupervised = loss.type === "cross_entropy";
  const advantages = isSupervised ? column("advantages", 0) : column("advantages");
  const logprobs = isSupervised ? column("logprobs", 0) : column("logprobs");
  const tokens_T = [...input, targets.at(-1) ?? 0];
  const given = isSupervised ? column("weights", 1) : [];
  const weights = targets.map((target, at) => {
    // What was not sampled has neither; leaving it out lets sequences share their prompt.
    const isUsed = isSupervised ? given[at] !== 0 : advantages[at] !== 0 || logprobs[at] !== 0;
    const isNext = target === tokens_T[at + 1];
    if (isUsed && !isNext) {
      throw refused(index, `target_tokens[${at}] is not the next token, model_input[${at + 1}]`);
    }
    if (isUsed) return given[at] ?? 1;
    // The answer has the log probability of every target. So small a weight counts as one, and is 0 in 32 bits.
    return isSupervised && isNext ? Number.MIN_VALUE : 0;
  });
  return {
    tokens_T,
    weights_T: [0, ...weights],
    advantages_T: [0, ...advantages],
    samplerLogprobs_T: [0, ...logprobs],
  };
}

export function outputOf(result: ForwardBackwardResult): TinkerForwardBackwardOutput {
  return {
    loss_fn_output_type: "TensorRecord",
    loss_fn_outputs: result.logprobs_B_T.map((logprobs_T) => {
      const data = [...logprobs_T.subarray(1)];
      return { logprobs: { data, dtype: "float32", shape: [data.length] } satisfies TinkerTensor };
    }),
    metrics: { "loss:sum": result.loss, "entropy:mean": result.entropy },
  };
}

function refused(index: number, problem: string): OsmosisError {
  return new OsmosisError("VALIDATION", `Datum ${index}: ${problem}.`);
}

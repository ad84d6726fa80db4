/** Between the data of the engine and those of the Tinker wire. */
import {
  decodeForwardBackwardOutput,
  decodeSampleResponse,
  errorMessage,
  OsmosisError,
  TinkerForwardBackwardOutput,
  TinkerSampleResponse,
  type TinkerClientConfig,
  type TinkerDatum,
  type TinkerForwardBackward,
  type TinkerTensor,
} from "@osmosis/protocol";
import type { z } from "zod";
import { tokenLoss } from "../losses.ts";
import type { Datum, ForwardBackwardResult, LossSpec } from "../service.ts";
import type { Reduction } from "./calibration.ts";
import type { WireAnswer } from "./wire-client.ts";

/** What a server averages cannot be weighted where it divides by the weights, so cross entropy goes another way there. */
export type WireLoss = {
  readonly loss: LossSpec;
  readonly reduction: Reduction;
  readonly temperature: number;
};

/**
 * The wire has weights for cross entropy only; all other losses are proportional to the advantage, so there the weight
 * goes into it, multiplied with `scale`. Tokens that the policy did not sample have neither advantage nor log probability.
 */
export function wireDatum(
  { tokens_T, weights_T, advantages_T, samplerLogprobs_T }: Datum,
  { loss, reduction }: WireLoss,
  scale: number,
): TinkerDatum {
  const weights = weights_T.slice(1).map((weight) => weight * scale);
  const isSupervised = loss.type === "cross_entropy";
  const policy = {
    advantages: floats(
      weights.map((weight, at) => weight * (isSupervised ? 1 : (advantages_T[at + 1] ?? 0))),
    ),
    logprobs: floats(weights.map((weight, at) => (weight === 0 ? 0 : (samplerLogprobs_T[at + 1] ?? 0)))),
  };
  return {
    model_input: { chunks: [{ type: "encoded_text", tokens: tokens_T.slice(0, -1) }] },
    loss_fn_inputs: {
      target_tokens: { ...floats(tokens_T.slice(1)), dtype: "int64" },
      ...(isSupervised && reduction === "sum" ? { weights: floats(weights) } : policy),
    },
  };
}

/**
 * The name of a loss and its settings, every one of them: servers differ in their defaults. Cross entropy is CISPO with a
 * ratio that is clipped to 1, where advantages can be scaled and weights cannot.
 */
export function wireLoss({
  loss,
  reduction,
  temperature,
}: WireLoss): Pick<TinkerForwardBackward["forward_backward_input"], "loss_fn" | "loss_fn_config"> {
  const more = temperature === 1 ? undefined : { temperature };
  if (loss.type === "ppo" || loss.type === "cispo") return clipped(loss.type, loss.clipLow, loss.clipHigh);
  if (loss.type === "cross_entropy" && reduction !== "sum") return clipped("cispo", 1, 1);
  return { loss_fn: loss.type, ...(more !== undefined && { loss_fn_config: more }) };

  function clipped(loss_fn: string, low: number, high: number) {
    return { loss_fn, loss_fn_config: { clip_high_threshold: high, clip_low_threshold: low, ...more } };
  }
}

/** Cuts data into requests of a size that the server takes. */
export function chunksOf(data_B: readonly Datum[], limits: TinkerClientConfig): Datum[][] {
  const chunks: Datum[][] = [];
  let bytes = 0;
  for (const datum of data_B) {
    // Tokens of 4 bytes, targets of 8, and two columns of 4.
    const size = 20 * datum.tokens_T.length;
    const last = chunks.at(-1);
    const isFull =
      last === undefined ||
      last.length >= limits.fwdbwd_max_chunk_len ||
      bytes + size > limits.fwdbwd_max_chunk_bytes_count;
    if (isFull) chunks.push([datum]);
    else last.push(datum);
    bytes = isFull ? size : bytes + size;
  }
  return chunks;
}

/**
 * What a forward pass gave. The loss is computed here, from the log probabilities: servers sum or average, and call it
 * by different names. The entropy is NaN where a server does not report it.
 */
export function forwardResult(
  chunks: readonly (readonly Datum[])[],
  answers: readonly WireAnswer[],
  loss: LossSpec,
): ForwardBackwardResult {
  const logprobs_B_T: Float32Array[] = [];
  let total = 0;
  let [entropy, sampledTokens] = [0, 0];
  for (const [index, data_B] of chunks.entries()) {
    const output = readAnswer(answers[index], TinkerForwardBackwardOutput, decodeForwardBackwardOutput);
    if (output.loss_fn_outputs.length !== data_B.length) {
      throw rubbish(`${output.loss_fn_outputs.length} results for ${data_B.length} sequences`);
    }
    // A mean over the tokens of one request.
    const tokens = data_B.reduce((sum, datum) => sum + sampledIn(datum), 0);
    sampledTokens += tokens;
    entropy += (output.metrics["entropy:mean"] ?? Number.NaN) * tokens;
    for (const [at, datum] of data_B.entries()) {
      const logprobs = output.loss_fn_outputs[at]?.["logprobs"]?.data ?? [];
      if (logprobs.length !== datum.tokens_T.length - 1) {
        throw rubbish(`${logprobs.length} log probabilities for ${datum.tokens_T.length} tokens`);
      }
      const logprobs_T = new Float32Array(datum.tokens_T.length);
      for (const [t, weight] of datum.weights_T.entries()) {
        if (t === 0 || weight === 0) continue;
        const logprob = logprobs[t - 1] ?? 0;
        logprobs_T[t] = logprob;
        const [advantage = 0, samplerLogprob = 0] = [datum.advantages_T[t], datum.samplerLogprobs_T[t]];
        total += weight * tokenLoss(loss, { logprob, samplerLogprob, advantage }).loss;
      }
      logprobs_B_T.push(logprobs_T);
    }
  }
  return { loss: total, logprobs_B_T, entropy: entropy / Math.max(1, sampledTokens) };
}

function sampledIn({ weights_T }: Datum): number {
  return weights_T.filter((weight, t) => t > 0 && weight !== 0).length;
}

export function sampleResult(answer: WireAnswer): {
  readonly tokens_T: readonly number[];
  readonly logprobs_T: readonly number[];
  readonly stopReason: "stop" | "length";
} {
  const [sequence] = readAnswer(answer, TinkerSampleResponse, decodeSampleResponse).sequences;
  if (sequence === undefined) throw rubbish("no sample");
  const { tokens, logprobs, stop_reason: stopReason } = sequence;
  if (tokens.length === 0 || tokens.some((token) => token < 0)) throw rubbish("a sample without tokens");
  if (logprobs?.length !== tokens.length) throw rubbish("a sample without its log probabilities");
  return { tokens_T: tokens, logprobs_T: logprobs, stopReason };
}

/** An answer in JSON or protocol buffers, checked by its schema. */
export function readAnswer<T>(
  answer: WireAnswer | undefined,
  schema: z.ZodType<T>,
  decode?: (bytes: Uint8Array) => unknown,
): T {
  const result = schema.safeParse(contentOf(answer, decode));
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const where =
    issue === undefined || issue.path.length === 0 ? "" : ` (${issue.path.join(".")}: ${issue.message})`;
  throw rubbish(`something else than the wire says${where}`);
}

function contentOf(
  answer: WireAnswer | undefined,
  decode: ((bytes: Uint8Array) => unknown) | undefined,
): unknown {
  if (answer === undefined) return undefined;
  if ("json" in answer) return answer.json;
  try {
    return decode?.(answer.protobuf);
  } catch (error) {
    throw rubbish(`protocol buffers that cannot be read: ${errorMessage(error)}`);
  }
}

function floats(data: number[]): TinkerTensor {
  return { data, dtype: "float32", shape: [data.length] };
}

export function rubbish(what: string): OsmosisError {
  return new OsmosisError("PLATFORM_ERROR", `The trainer answered with ${what}.`, {
    hint: "Check the address of the trainer, and its log.",
  });
}

/**
 * Losses of one token as small values: each says, in plain JavaScript and as graph nodes, what the token costs and how
 * that changes with its log probability. `logprob` is under the current weights, `samplerLogprob` under those that
 * sampled it; their ratio is `exp(logprob - samplerLogprob)`.
 */
import type { GraphBuilder } from "./graph/builder.ts";
import type { Value } from "./graph/onnx.ts";
import type { LossSpec } from "./service.ts";

export type Token = {
  readonly logprob: number;
  readonly samplerLogprob: number;
  readonly advantage: number;
};

export type TokenLoss = { readonly loss: number; readonly derivative: number };

/** The same, as values of shape `[S, 1]`. Bounds are scalar inputs, so that one graph serves all of them. */
export type TokenValues = {
  readonly logprob: Value;
  readonly samplerLogprob: Value;
  readonly advantage: Value;
  readonly clipLow: Value;
  readonly clipHigh: Value;
};

type Loss = {
  evaluate(token: Token, bounds: { readonly low: number; readonly high: number }): TokenLoss;
  emit(graph: GraphBuilder, token: TokenValues): { readonly loss: Value; readonly derivative: Value };
};

/** `-logprob`. */
const crossEntropy: Loss = {
  evaluate: ({ logprob }) => ({ loss: -logprob, derivative: -1 }),
  emit(graph, { logprob }) {
    const { shape } = logprob;
    const sizes = graph.node("Shape", [logprob], { shape: [shape.length], type: "int64" });
    return {
      loss: graph.node("Neg", [logprob], { shape }),
      derivative: graph.node("Expand", [graph.scalar(-1), sizes], { shape }),
    };
  },
};

/** `-ratio * advantage`: the policy gradient, corrected for the sampler's distribution. */
const importanceSampling: Loss = {
  evaluate(token) {
    const loss = -ratioOf(token) * token.advantage;
    return { loss, derivative: loss };
  },
  emit(graph, token) {
    const loss = negativeProduct(graph, emitRatio(graph, token), token.advantage);
    return { loss, derivative: loss };
  },
};

/** `-min(ratio * advantage, clip(ratio) * advantage)`, arXiv 1707.06347; no gradient where the clipped branch wins. */
const ppo: Loss = {
  evaluate(token, { low, high }) {
    const ratio = ratioOf(token);
    const unclipped = -ratio * token.advantage;
    const clipped = -clamp(ratio, low, high) * token.advantage;
    return unclipped >= clipped
      ? { loss: unclipped, derivative: unclipped }
      : { loss: clipped, derivative: 0 };
  },
  emit(graph, token) {
    const { shape } = token.logprob;
    const ratio = emitRatio(graph, token);
    const unclipped = negativeProduct(graph, ratio, token.advantage);
    const clipped = negativeProduct(graph, emitClamp(graph, ratio, token), token.advantage);
    const wins = graph.node("GreaterOrEqual", [unclipped, clipped], { shape, type: "bool" });
    return {
      loss: graph.node("Max", [unclipped, clipped], { shape }),
      derivative: graph.node("Where", [wins, unclipped, graph.scalar(0)], { shape }),
    };
  },
};

/** `-clip(ratio) * advantage * logprob`, arXiv 2506.13585; the clipped ratio is a constant weight. */
const cispo: Loss = {
  evaluate(token, { low, high }) {
    const derivative = -clamp(ratioOf(token), low, high) * token.advantage;
    return { loss: derivative * token.logprob, derivative };
  },
  emit(graph, token) {
    const { shape } = token.logprob;
    const ratio = emitClamp(graph, emitRatio(graph, token), token);
    const derivative = negativeProduct(graph, ratio, token.advantage);
    return { loss: graph.node("Mul", [derivative, token.logprob], { shape }), derivative };
  },
};

const LOSSES: Readonly<Record<LossSpec["type"], Loss>> = {
  cross_entropy: crossEntropy,
  importance_sampling: importanceSampling,
  ppo,
  cispo,
};

/** Loss of one token and its derivative with respect to the log probability, before its weight. */
export function tokenLoss(spec: LossSpec, token: Token): TokenLoss {
  const { clipLow, clipHigh } = clipBounds(spec);
  return LOSSES[spec.type].evaluate(token, { low: clipLow, high: clipHigh });
}

/** Emits `tokenLoss` for a column of tokens. */
export function emitTokenLoss(
  graph: GraphBuilder,
  type: LossSpec["type"],
  token: TokenValues,
): { readonly loss: Value; readonly derivative: Value } {
  return LOSSES[type].emit(graph, token);
}

/** The bounds of the ratio; losses without clipping leave it free. */
export function clipBounds(spec: LossSpec): { readonly clipLow: number; readonly clipHigh: number } {
  return spec.type === "ppo" || spec.type === "cispo" ? spec : { clipLow: 0, clipHigh: Infinity };
}

/** Whether a token of this advantage leaves every gradient unchanged. */
export function hasNoGradient(spec: LossSpec, advantage: number): boolean {
  return spec.type !== "cross_entropy" && advantage === 0;
}

function ratioOf({ logprob, samplerLogprob }: Token): number {
  return Math.exp(logprob - samplerLogprob);
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}

function emitRatio(graph: GraphBuilder, { logprob, samplerLogprob }: TokenValues): Value {
  const { shape } = logprob;
  return graph.node("Exp", [graph.node("Sub", [logprob, samplerLogprob], { shape })], { shape });
}

function emitClamp(graph: GraphBuilder, ratio: Value, { clipLow, clipHigh }: TokenValues): Value {
  return graph.node("Clip", [ratio, clipLow, clipHigh], { shape: ratio.shape });
}

function negativeProduct(graph: GraphBuilder, left: Value, right: Value): Value {
  const { shape } = left;
  return graph.node("Neg", [graph.node("Mul", [left, right], { shape })], { shape });
}

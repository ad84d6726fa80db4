import type { BuiltGraph } from "../graph/builder.ts";
import type { Value } from "../graph/onnx.ts";
import {
  attention,
  concat,
  repeatFirst,
  reshape,
  scale,
  selectRows,
  splitRows,
  swapMiddle,
  tokenLogprobs,
} from "../graph/operations.ts";
import { Tape } from "../graph/tape.ts";
import { emitTokenLoss } from "../losses.ts";
import type { ModelConfig } from "../model-config.ts";
import type { LossSpec } from "../service.ts";
import { decoder, type AttentionRows } from "./decoder.ts";
import { EMBEDDING } from "./parameters.ts";

/** The output that holds the gradient of the embedded rows `[N, hiddenSize]`, to be added up by token. */
export const EMBEDDED_ROWS_GRADIENT = "gradient of embedded rows";

export function gradientName(parameter: string): string {
  return `gradient of ${parameter}`;
}

/**
 * The graph of one micro-batch: B sequences that share their first P tokens, each followed by a suffix that is padded
 * to T tokens. The shared tokens are computed once. Token rows are laid out as
 *
 *     N = P + B*T rows:  prefix (P) | suffix of sequence 0 (T) | suffix of sequence 1 (T) | ...
 *
 * and the S positions that carry a loss are picked out of them before the last feed-forward block. All five sizes are
 * chosen by each run, so one graph serves every batch.
 *
 * Inputs besides the parameters: `tokens` int64 [N], `positions` int64 [N, 1], `prefix mask` [P, P] and `suffix mask`
 * [T, P+T] (added to attention scores), `selected` int64 [S] and `inverse` int64 [N] (see `selectRows`), `targets`
 * int64 [S, 1], `weights`, `advantages`, `sampler logprobs` [S, 1], and scalars `clip low`, `clip high`, `inverse
 * temperature`. Outputs: `losses`, `logprobs`, `entropies` [S, 1] and one gradient per trainable parameter.
 */
export function trainingGraph(
  config: ModelConfig,
  options: {
    readonly loss: LossSpec["type"];
    /** Names of the parameters whose gradients are wanted; none for a forward pass only. */
    readonly trainable: readonly string[];
    readonly adapter?: { readonly rank: number; readonly scale: number };
  },
): BuiltGraph {
  const tape = new Tape();
  const { graph } = tape;
  const { vocabSize, hiddenSize } = config;
  const table = graph.input(EMBEDDING, [vocabSize, hiddenSize]);
  const embedded = graph.node("Gather", [table, graph.input("tokens", ["N"], "int64")], {
    shape: ["N", hiddenSize],
  });
  const selected = graph.input("selected", ["S"], "int64");
  const inverse = graph.input("inverse", ["N"], "int64");
  const logits = decoder(tape, config, {
    embedded,
    positions: graph.input("positions", ["N", 1], "int64"),
    attend: (_, rows) => prefixAttention(tape, config, rows),
    select: (rows) => selectRows(tape, rows, selected, inverse),
    ...(options.adapter && { adapter: options.adapter }),
  });
  const sharpened = scale(tape, logits, graph.input("inverse temperature", []));

  const column = ["S", 1];
  const { logprobs, entropy } = tokenLogprobs(tape, sharpened, graph.input("targets", column, "int64"));
  const weights = graph.input("weights", column);
  const { loss, derivative } = emitTokenLoss(graph, options.loss, {
    logprob: logprobs,
    samplerLogprob: graph.input("sampler logprobs", column),
    advantage: graph.input("advantages", column),
    clipLow: graph.input("clip low", []),
    clipHigh: graph.input("clip high", []),
  });
  const weighted = (x: Value): Value => graph.node("Mul", [x, weights], { shape: column });
  graph.output("losses", weighted(loss));
  graph.output("logprobs", logprobs);
  graph.output("entropies", entropy);

  // An embedding that is also the head has two gradients: the head's is a matrix, the other one belongs to its rows.
  const parameters = options.trainable.map((name) => graph.parameter(name));
  const wanted = options.trainable.includes(EMBEDDING) ? [...parameters, embedded] : parameters;
  const gradients = wanted.length === 0 ? [] : tape.gradients(logprobs, weighted(derivative), wanted);
  for (const [i, parameter] of wanted.entries()) {
    const gradient = gradients[i];
    if (gradient === undefined) continue;
    graph.output(parameter === embedded ? EMBEDDED_ROWS_GRADIENT : gradientName(parameter.name), gradient);
  }
  return graph.build();
}

/** Causal attention in the layout above: the prefix looks at itself, each suffix at the prefix and at itself. */
function prefixAttention(tape: Tape, config: ModelConfig, rows: AttentionRows): Value {
  const { heads, kvHeads, headSize } = config;
  const { graph } = tape;
  const cut = (x: Value, count: number): [Value, Value] => {
    const [prefix, suffix] = splitRows(tape, x, ["P", "B*T"]);
    return [
      swapMiddle(tape, reshape(tape, prefix, [1, "P", count, headSize])),
      swapMiddle(tape, reshape(tape, suffix, ["B", "T", count, headSize])),
    ];
  };
  const [prefixQuery, suffixQuery] = cut(rows.query, heads);
  const [prefixKey, suffixKey] = cut(rows.key, kvHeads);
  const [prefixValue, suffixValue] = cut(rows.value, kvHeads);
  const extend = (prefix: Value, suffix: Value): Value =>
    concat(tape, [repeatFirst(tape, prefix, "B"), suffix], { axis: 2, total: "P+T" });

  const prefixMask = graph.input("prefix mask", ["P", "P"]);
  const suffixMask = graph.input("suffix mask", ["T", "P+T"]);
  const prefix = attention(tape, prefixQuery, prefixKey, prefixValue, prefixMask);
  const suffix = attention(
    tape,
    suffixQuery,
    extend(prefixKey, suffixKey),
    extend(prefixValue, suffixValue),
    suffixMask,
  );
  const merge = (x: Value, count: string): Value =>
    reshape(tape, swapMiddle(tape, x), [count, heads * headSize]);
  return concat(tape, [merge(prefix, "P"), merge(suffix, "B*T")], { axis: 0, total: "N" });
}

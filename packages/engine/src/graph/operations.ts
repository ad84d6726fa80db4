/**
 * The differentiable operations of a decoder, each with its forward and its backward nodes. Matrices are row-major;
 * `N` stands for token rows, linear weights are `[out, in]` as in Hugging Face checkpoints.
 *
 * There is no scatter with duplicate indices anywhere: with two threads, onnxruntime loses updates in them.
 */
import type { GraphBuilder } from "./builder.ts";
import type { Dimension, Shape, Value } from "./onnx.ts";
import type { Tape } from "./tape.ts";

/** `left + right` for operands of one shape. */
export function add(tape: Tape, left: Value, right: Value): Value {
  const sum = tape.graph.node("Add", [left, right], { shape: left.shape });
  return tape.record(sum, [left, right], (gradient) => [gradient, gradient]);
}

/** `left * right` for operands of one shape. */
export function multiply(tape: Tape, left: Value, right: Value): Value {
  const { graph } = tape;
  const product = graph.node("Mul", [left, right], { shape: left.shape });
  return tape.record(product, [left, right], (gradient, needed) => [
    needed[0] ? graph.node("Mul", [gradient, right], { shape: left.shape }) : undefined,
    needed[1] ? graph.node("Mul", [gradient, left], { shape: left.shape }) : undefined,
  ]);
}

/** A matrix product of two matrices, either of them transposed, plus `addend` of the product's shape or a row. */
export function gemm(
  graph: GraphBuilder,
  left: Value,
  right: Value,
  options: { transA?: boolean; transB?: boolean; alpha?: number; addend?: Value } = {},
): Value {
  const { transA = false, transB = false, alpha = 1, addend } = options;
  const [rows, columns] = [left.shape[transA ? 1 : 0], right.shape[transB ? 0 : 1]];
  if (rows === undefined || columns === undefined) throw new Error("gemm takes two matrices");
  return graph.node("Gemm", addend === undefined ? [left, right] : [left, right, addend], {
    shape: [rows, columns],
    attributes: {
      transA: { int: Number(transA) },
      transB: { int: Number(transB) },
      alpha: { float: alpha },
    },
  });
}

/** `x weightᵀ (+ bias)`: x `[N, in]`, weight `[out, in]`, bias `[out]`. */
export function linear(tape: Tape, x: Value, weight: Value, bias?: Value): Value {
  const { graph } = tape;
  const y = gemm(graph, x, weight, { transB: true, ...(bias && { addend: bias }) });
  return tape.record(y, bias ? [x, weight, bias] : [x, weight], (gradient, needed) => [
    needed[0] ? gemm(graph, gradient, weight) : undefined,
    needed[1] ? gemm(graph, gradient, x, { transA: true }) : undefined,
    needed[2] && bias ? graph.reshape(sumRows(graph, gradient), bias.shape) : undefined,
  ]);
}

/** A linear layer with a low-rank adapter: `x weightᵀ + scale (x Aᵀ) Bᵀ`; A `[rank, in]`, B `[out, rank]`. */
export function adaptedLinear(
  tape: Tape,
  x: Value,
  weight: Value,
  adapter: { readonly A: Value; readonly B: Value; readonly scale: number; readonly bias?: Value },
): Value {
  const { A, B, scale, bias } = adapter;
  const { graph } = tape;
  const base = linear(tape, x, weight, bias);
  const low = gemm(graph, x, A, { transB: true });
  const y = gemm(graph, low, B, { transB: true, alpha: scale, addend: base });
  return tape.record(y, [base, x, A, B], (gradient, needed) => {
    const gradientOfLow = needed[1] || needed[2] ? gemm(graph, gradient, B, { alpha: scale }) : undefined;
    return [
      gradient,
      needed[1] && gradientOfLow ? gemm(graph, gradientOfLow, A) : undefined,
      needed[2] && gradientOfLow ? gemm(graph, gradientOfLow, x, { transA: true }) : undefined,
      needed[3] ? gemm(graph, gradient, low, { transA: true, alpha: scale }) : undefined,
    ];
  });
}

/** Root mean square normalisation of rows `[N, d]`, then times `weight`: `x / sqrt(mean(x²) + epsilon) * weight`. */
export function rmsNorm(tape: Tape, x: Value, weight: Value, epsilon: number): Value {
  const { graph } = tape;
  const { shape } = x;
  const [rows = 0, width = 0] = shape;
  const column: Shape = [rows, 1];
  const [y, inverseRms] = graph.nodes("SimplifiedLayerNormalization", [x, weight], {
    shapes: [shape, column],
    attributes: { axis: { int: -1 }, epsilon: { float: epsilon } },
  });
  if (y === undefined || inverseRms === undefined) throw new Error("two outputs were asked for");
  return tape.record(y, [x, weight], (gradient, needed) => {
    // With r = inverseRms: dx = r g w - x r³ sum(g w x) / d, and dw = the sum over rows of r g x. Both sums are matrix
    // products, which are much faster than reductions.
    const product = graph.node("Mul", [gradient, x], { shape });
    const dots = gemm(graph, product, graph.reshape(weight, [width, 1]), { alpha: 1 / Number(width) });
    const square = graph.node("Mul", [inverseRms, inverseRms], { shape: column });
    const cube = graph.node("Mul", [square, inverseRms], { shape: column });
    const along = graph.node("Mul", [x, graph.node("Mul", [dots, cube], { shape: column })], { shape });
    const weighted = graph.node("Mul", [gradient, weight], { shape });
    const scaled = graph.node("Mul", [weighted, inverseRms], { shape });
    return [
      needed[0] ? graph.node("Sub", [scaled, along], { shape }) : undefined,
      needed[1] ? graph.reshape(gemm(graph, inverseRms, product, { transA: true }), weight.shape) : undefined,
    ];
  });
}

/**
 * Rotary position embedding of `[N, heads * headSize]` rows, the halves of each head rotated as in Hugging Face
 * models. `positions` is int64 `[N, 1]`; the tables are `[context, headSize / 2]`.
 */
export function rotary(
  tape: Tape,
  x: Value,
  tables: { readonly positions: Value; readonly cosine: Value; readonly sine: Value },
): Value {
  const { graph } = tape;
  const { positions, cosine, sine } = tables;
  // Each row is a batch of one: the operator refuses sequences that are longer than its tables.
  const [rows = 0, width = 0] = x.shape;
  const shape: Shape = [rows, 1, width];
  const rotate = (unrotated: Value, angle: Value): Value => {
    const rotated = graph.node(
      "RotaryEmbedding",
      [graph.reshape(unrotated, shape), positions, cosine, angle],
      {
        shape,
        domain: "com.microsoft",
      },
    );
    return graph.reshape(rotated, x.shape);
  };
  // Rotations are orthogonal, so the gradient is rotated back.
  return tape.record(rotate(x, sine), [x], (gradient) => [
    rotate(gradient, graph.node("Neg", [sine], { shape: sine.shape })),
  ]);
}

/** `gate * sigmoid(gate) * up`. */
export function swiglu(tape: Tape, gate: Value, up: Value): Value {
  const { graph } = tape;
  const shape = gate.shape;
  const sigmoid = graph.node("Sigmoid", [gate], { shape });
  const silu = graph.node("Mul", [gate, sigmoid], { shape });
  const y = graph.node("Mul", [silu, up], { shape });
  return tape.record(y, [gate, up], (gradient) => {
    // silu' = sigmoid + silu * (1 - sigmoid)
    const rest = graph.node("Sub", [silu, graph.node("Mul", [silu, sigmoid], { shape })], { shape });
    const slope = graph.node("Add", [sigmoid, rest], { shape });
    const upstream = graph.node("Mul", [gradient, up], { shape });
    return [graph.node("Mul", [upstream, slope], { shape }), graph.node("Mul", [gradient, silu], { shape })];
  });
}

/**
 * Softmax attention of queries `[B, heads, T, headSize]` over keys and values `[B, keyHeads, S, headSize]`; `mask`
 * `[T, S]` is added to the scores. Consecutive groups of heads share a key head.
 */
export function attention(tape: Tape, query: Value, key: Value, value: Value, mask: Value): Value {
  const { graph } = tape;
  const [batch, heads, length, size] = sizes4(query);
  const [, keyHeads, span] = sizes4(key);
  const scale = 1 / Math.sqrt(Number(size));
  // The heads of one group are consecutive, so a group is one taller matrix of the same data.
  const rows: Dimension =
    heads === keyHeads ? length : multiplyDimension(length, Number(heads) / Number(keyHeads));
  const grouped = (x: Value, last: Dimension): Value =>
    heads === keyHeads ? x : graph.reshape(x, [batch, keyHeads, rows, last]);
  const ungrouped = (x: Value, last: Dimension): Value =>
    heads === keyHeads ? x : graph.reshape(x, [batch, heads, length, last]);
  const scoreShape: Shape = [batch, heads, length, span];

  const groupedQuery = grouped(query, size);
  const scores = ungrouped(batchedMatMul(graph, groupedQuery, key, { transB: true, alpha: scale }), span);
  const masked = graph.node("Add", [scores, mask], { shape: scoreShape });
  const weights = graph.node("Softmax", [masked], { shape: scoreShape, attributes: { axis: { int: -1 } } });
  const groupedWeights = grouped(weights, span);
  const output = ungrouped(batchedMatMul(graph, groupedWeights, value), size);

  return tape.record(output, [query, key, value], (gradient) => {
    const groupedGradient = grouped(gradient, size);
    const gradientOfWeights = ungrouped(batchedMatMul(graph, groupedGradient, value, { transB: true }), span);
    // sum(weights * gradientOfWeights) over the keys equals sum(output * gradient) over the head, which is smaller.
    const agreement = graph.node(
      "ReduceSum",
      [graph.node("Mul", [output, gradient], { shape: query.shape }), graph.integers([-1])],
      { shape: [batch, heads, length, 1] },
    );
    const centred = graph.node("Sub", [gradientOfWeights, agreement], { shape: scoreShape });
    const gradientOfScores = grouped(graph.node("Mul", [weights, centred], { shape: scoreShape }), span);
    return [
      ungrouped(batchedMatMul(graph, gradientOfScores, key, { alpha: scale }), size),
      batchedMatMul(graph, gradientOfScores, groupedQuery, { transA: true, alpha: scale }),
      batchedMatMul(graph, groupedWeights, groupedGradient, { transA: true }),
    ];
  });
}

/** A reshape without moving data; see `GraphBuilder.reshape`. */
export function reshape(tape: Tape, x: Value, shape: Shape): Value {
  return tape.record(tape.graph.reshape(x, shape), [x], (gradient) => [
    tape.graph.reshape(gradient, x.shape),
  ]);
}

/** Swaps axes 1 and 2 of `[a, b, c, d]`, between tokens and heads. */
export function swapMiddle(tape: Tape, x: Value): Value {
  const swap = (y: Value): Value => {
    const [a, b, c, d] = sizes4(y);
    return tape.graph.node("Transpose", [y], {
      shape: [a, c, b, d],
      attributes: { perm: { ints: [0, 2, 1, 3] } },
    });
  };
  return tape.record(swap(x), [x], (gradient) => [swap(gradient)]);
}

/** Joins along `axis`; `total` names the size of the result there. */
export function concat(
  tape: Tape,
  parts: readonly Value[],
  options: { readonly axis: number; readonly total: Dimension },
): Value {
  const { axis, total } = options;
  const [first] = parts;
  if (first === undefined) throw new Error("concat takes at least one part");
  const joined = tape.graph.node("Concat", parts, {
    shape: first.shape.with(axis, total),
    attributes: { axis: { int: axis } },
  });
  return tape.record(joined, parts, (gradient) => splitNodes(tape.graph, gradient, parts, axis));
}

/** Cuts `[first + second, ...]` rows in two. */
export function splitRows(tape: Tape, x: Value, sizes: readonly [Dimension, Dimension]): [Value, Value] {
  const { graph } = tape;
  const [head, tail] = splitNodes(
    graph,
    x,
    sizes.map((size) => ({ shape: x.shape.with(0, size) })),
    0,
  );
  if (head === undefined || tail === undefined) throw new Error("two outputs were asked for");
  const zeros = (shape: Shape): Value => graph.node("ConstantOfShape", [graph.sizes(shape)], { shape });
  tape.recordMany([head, tail], [x], ([first = zeros(head.shape), second = zeros(tail.shape)]) => [
    graph.node("Concat", [first, second], { shape: x.shape, attributes: { axis: { int: 0 } } }),
  ]);
  return [head, tail];
}

/** Repeats `[1, ...]` along its first axis. */
export function repeatFirst(tape: Tape, x: Value, count: Dimension): Value {
  const { graph } = tape;
  const shape = x.shape.with(0, count);
  const repeated = graph.node("Expand", [x, graph.sizes([count, ...x.shape.slice(1).fill(1)])], { shape });
  return tape.record(repeated, [x], (gradient) => [
    graph.reshape(sumRows(graph, graph.reshape(gradient, [count, "rest"])), x.shape),
  ]);
}

/**
 * The rows `index` (int64 `[S]`, without duplicates) of `x` `[N, d]`. `inverse` (int64 `[N]`) holds for every row of
 * `x` its place in `index`, or S where it was not selected, which makes the way back a gather, too.
 */
export function selectRows(tape: Tape, x: Value, index: Value, inverse: Value): Value {
  const { graph } = tape;
  const selected = graph.node("Gather", [x, index], { shape: x.shape.with(0, index.shape[0] ?? 0) });
  return tape.record(selected, [x], (gradient) => {
    const zeroRow = graph.node("ConstantOfShape", [graph.sizes([1, ...x.shape.slice(1)])], {
      shape: [1, ...x.shape.slice(1)],
    });
    const padded = graph.node("Concat", [gradient, zeroRow], {
      shape: x.shape.with(0, `${selected.shape[0]}+1`),
      attributes: { axis: { int: 0 } },
    });
    return [graph.node("Gather", [padded, inverse], { shape: x.shape })];
  });
}

/**
 * Log probability `[S, 1]` of each target (int64 `[S, 1]`) under the softmax of logits `[S, V]`, and the entropy
 * `[S, 1]` of that softmax in nats, through which no gradient flows.
 */
export function tokenLogprobs(
  tape: Tape,
  logits: Value,
  targets: Value,
): { readonly logprobs: Value; readonly entropy: Value } {
  const { graph } = tape;
  const column = targets.shape;
  const all = graph.node("LogSoftmax", [logits], { shape: logits.shape, attributes: { axis: { int: -1 } } });
  const probabilities = graph.node("Exp", [all], { shape: logits.shape });
  const logprobs = graph.node("GatherElements", [all, targets], {
    shape: column,
    attributes: { axis: { int: 1 } },
  });
  const information = graph.node("Mul", [probabilities, all], { shape: logits.shape });
  const entropy = graph.node(
    "Neg",
    [graph.node("ReduceSum", [information, graph.integers([-1])], { shape: column })],
    { shape: column },
  );
  tape.record(logprobs, [logits], (gradient) => {
    // gradient * (onehot(target) - probabilities). Each row has one target, so no index is written twice.
    const opposite = graph.node("Neg", [gradient], { shape: column });
    const everywhere = graph.node("Mul", [probabilities, opposite], { shape: logits.shape });
    const chosen = graph.node("Exp", [logprobs], { shape: column });
    const atTarget = graph.node("Add", [gradient, graph.node("Mul", [chosen, opposite], { shape: column })], {
      shape: column,
    });
    return [
      graph.node("ScatterElements", [everywhere, targets, atTarget], {
        shape: logits.shape,
        attributes: { axis: { int: 1 } },
      }),
    ];
  });
  return { logprobs, entropy };
}

/** `x * factor`, the factor a scalar that is not differentiated. */
export function scale(tape: Tape, x: Value, factor: Value): Value {
  const { graph } = tape;
  return tape.record(graph.node("Mul", [x, factor], { shape: x.shape }), [x], (gradient) => [
    graph.node("Mul", [gradient, factor], { shape: x.shape }),
  ]);
}

function batchedMatMul(
  graph: GraphBuilder,
  left: Value,
  right: Value,
  options: { transA?: boolean; transB?: boolean; alpha?: number } = {},
): Value {
  const { transA = false, transB = false, alpha = 1 } = options;
  const [batch, heads, leftRows, leftColumns] = sizes4(left);
  const [, , rightRows, rightColumns] = sizes4(right);
  return graph.node("FusedMatMul", [left, right], {
    shape: [batch, heads, transA ? leftColumns : leftRows, transB ? rightRows : rightColumns],
    attributes: {
      transA: { int: Number(transA) },
      transB: { int: Number(transB) },
      alpha: { float: alpha },
    },
    domain: "com.microsoft",
  });
}

/** The sum `[1, d]` over the rows of `[N, d]`, as a product with ones: several times faster than a reduction. */
function sumRows(graph: GraphBuilder, x: Value): Value {
  const [rows = 0] = x.shape;
  const ones = graph.node("Expand", [graph.scalar(1), graph.sizes([1, rows])], { shape: [1, rows] });
  return gemm(graph, ones, x);
}

function splitNodes(
  graph: GraphBuilder,
  x: Value,
  parts: readonly { readonly shape: Shape }[],
  axis: number,
): Value[] {
  return graph.nodes("Split", [x, graph.sizes(parts.map((part) => part.shape[axis] ?? 0))], {
    shapes: parts.map((part) => part.shape),
    attributes: { axis: { int: axis } },
  });
}

function sizes4(x: Value): readonly [Dimension, Dimension, Dimension, Dimension] {
  const [a, b, c, d] = x.shape;
  if (a === undefined || b === undefined || c === undefined || d === undefined) {
    throw new Error(`${x.name} has ${x.shape.length} dimensions, not 4`);
  }
  return [a, b, c, d];
}

function multiplyDimension(size: Dimension, factor: number): Dimension {
  return typeof size === "number" ? size * factor : `${factor}*${size}`;
}

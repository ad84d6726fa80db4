/**
 * The decoder, cut into three graphs between which JavaScript applies the rotary embedding and writes keys and values
 * into the cache: `project` (norm, queries, keys and values), `layer` (attention and feed-forward, one layer), and
 * `head` (norm, logits, probabilities).
 *
 * The cut is what makes sampling reproducible. Every token, prompt or sampled, alone or in a batch, reads its own keys
 * and values from the same place in the cache, and its attention is one vector times one matrix (the batch dimensions
 * come first, the query dimension is 1 or the group of query heads). Then its bits depend on the tokens before it and
 * on the weights alone: not on the batch, the slot, the size of the cache, or how the prompt was cut into pieces. This
 * holds for `plain` products (see `product-layout.ts`) as long as a session has one thread (with more, the split of a
 * product's inner dimension depends on the number of rows) and a matrix product has at least two rows (a single row
 * takes another kernel), and for `blocked` ones always. `determinism.test.ts` checks it.
 *
 * Dimensions: R rows (sequences), S tokens per row, M = R * S, T capacity of the cache in tokens. With blocked products
 * M is filled up with P rows of zeros to a multiple of `BLOCK_ROWS`, and matrices are [out, in] instead of [in, out].
 */
import { GraphBuilder } from "../graph/builder.ts";
import type { BuiltGraph } from "../graph/builder.ts";
import type { Value } from "../graph/onnx.ts";
import type { ModelConfig } from "../model-config.ts";
import { BLOCK_ROWS, productLayoutOf } from "./product-layout.ts";

/** Input `x` [M, hidden] next to the weights (see `decoder-weights.ts`); output `qkv` [M, (heads + 2 kvHeads) * headSize]. */
export function projectGraph(config: ModelConfig): BuiltGraph {
  const graph = new GraphBuilder();
  graph.output("qkv", project(graph, graph.input("x", ["M", config.hiddenSize]), config));
  return graph.build();
}

/**
 * One layer and the projection of the next. Inputs `x` [M, hidden], `q` [R, S, kvHeads, group, headSize] rotated and
 * scaled, `keys` [R, 1, kvHeads, headSize, T], `values` [R, 1, kvHeads, T, headSize], `mask` [R, S, 1, 1, T]; outputs
 * `x`, and `qkv` of the next layer unless this is the last one.
 */
export function layerGraph(config: ModelConfig, options: { readonly last: boolean }): BuiltGraph {
  const graph = new GraphBuilder();
  const x = graph.input("x", ["M", config.hiddenSize]);
  const attended = add(graph, x, attention(graph, config));
  const y = add(graph, attended, feedForward(graph, attended, config));
  graph.output("y", y);
  if (!options.last) graph.output("qkv", project(graph, y, config));
  return graph.build();
}

/** Inputs `x` [M, hidden], `inverseTemperature` [M, 1]; output `probabilities` [M, vocab]. */
export function headGraph(config: ModelConfig): BuiltGraph {
  const { hiddenSize, vocabSize } = config;
  const graph = new GraphBuilder();
  const x = norm(graph, graph.input("x", ["M", hiddenSize]), {
    name: "finalNorm",
    size: hiddenSize,
    epsilon: config.normEpsilon,
  });
  const shape = ["M", vocabSize];
  const logits = product(graph, x, { name: "head", inputs: hiddenSize, outputs: vocabSize, config });
  const scaled = graph.node("Mul", [logits, graph.input("inverseTemperature", ["M", 1])], { shape });
  graph.output(
    "probabilities",
    graph.node("Softmax", [scaled], { shape, attributes: { axis: { int: -1 } } }),
  );
  return graph.build();
}

function project(graph: GraphBuilder, x: Value, config: ModelConfig): Value {
  const { architecture, hiddenSize, heads, kvHeads, headSize, normEpsilon: epsilon } = config;
  const width = (heads + 2 * kvHeads) * headSize;
  const shape = ["M", width];
  const normed = norm(graph, x, { name: "inputNorm", size: hiddenSize, epsilon });
  const qkv = product(graph, normed, { name: "projection", inputs: hiddenSize, outputs: width, config });
  if (architecture === "qwen2") return add(graph, qkv, graph.input("projectionBias", [width]));
  if (architecture !== "qwen3") return qkv;

  const sizes = [heads * headSize, kvHeads * headSize, kvHeads * headSize];
  const [q, k, v] = graph.nodes("Split", [qkv, graph.integers(sizes)], {
    shapes: sizes.map((size) => ["M", size]),
    attributes: { axis: { int: -1 } },
  });
  if (q === undefined || k === undefined || v === undefined) throw new Error("a split has three outputs");
  const perHead = (value: Value, name: string, count: number): Value => {
    const split = graph.reshape(value, ["M", count, headSize]);
    return graph.reshape(norm(graph, split, { name, size: headSize, epsilon }), ["M", count * headSize]);
  };
  return graph.node("Concat", [perHead(q, "queryNorm", heads), perHead(k, "keyNorm", kvHeads), v], {
    shape,
    attributes: { axis: { int: -1 } },
  });
}

function attention(graph: GraphBuilder, config: ModelConfig): Value {
  const { hiddenSize, heads, kvHeads, headSize } = config;
  const group = heads / kvHeads;
  const q = graph.input("q", ["R", "S", kvHeads, group, headSize]);
  const keys = graph.input("keys", ["R", 1, kvHeads, headSize, "T"]);
  const values = graph.input("values", ["R", 1, kvHeads, "T", headSize]);
  const mask = graph.input("mask", ["R", "S", 1, 1, "T"]);
  const shape = ["R", "S", kvHeads, group, "T"];
  const scores = graph.node("Add", [graph.node("MatMul", [q, keys], { shape }), mask], { shape });
  const probabilities = graph.node("Softmax", [scores], { shape, attributes: { axis: { int: -1 } } });
  const mixed = graph.node("MatMul", [probabilities, values], { shape: q.shape });
  const width = heads * headSize;
  const flat = graph.node("Reshape", [mixed, graph.integers([-1, width])], { shape: ["M", width] });
  const filled =
    productLayoutOf(config) === "plain"
      ? flat
      : graph.node("Concat", [flat, graph.input("padding", ["P", width])], {
          shape: ["M", width],
          attributes: { axis: { int: 0 } },
        });
  return product(graph, filled, { name: "output", inputs: width, outputs: hiddenSize, config });
}

function feedForward(graph: GraphBuilder, x: Value, config: ModelConfig): Value {
  const { hiddenSize, feedForwardSize: width, normEpsilon: epsilon } = config;
  const normed = norm(graph, x, { name: "feedForwardNorm", size: hiddenSize, epsilon });
  const both = product(graph, normed, { name: "gateUp", inputs: hiddenSize, outputs: 2 * width, config });
  const shape = ["M", width];
  const [gate, up] = graph.nodes("Split", [both, graph.integers([width, width])], {
    shapes: [shape, shape],
    attributes: { axis: { int: -1 } },
  });
  // With alpha 1 this is SiLU, x * sigmoid(x), in one node.
  const activated = graph.node("QuickGelu", [gate], {
    shape,
    domain: "com.microsoft",
    attributes: { alpha: { float: 1 } },
  });
  const gated = graph.node("Mul", [activated, up], { shape });
  return product(graph, gated, { name: "down", inputs: width, outputs: hiddenSize, config });
}

/** Rows [M, inputs] times the matrix of an input. */
function product(
  graph: GraphBuilder,
  x: Value,
  matrix: {
    readonly name: string;
    readonly inputs: number;
    readonly outputs: number;
    readonly config: ModelConfig;
  },
): Value {
  const { name, inputs, outputs, config } = matrix;
  if (productLayoutOf(config) === "plain") {
    return graph.node("MatMul", [x, graph.input(name, [inputs, outputs])], { shape: ["M", outputs] });
  }
  const swap = { perm: { ints: [0, 2, 1] } };
  const blocks = graph.node("Reshape", [x, graph.integers([-1, BLOCK_ROWS, inputs])], {
    shape: ["B", BLOCK_ROWS, inputs],
  });
  const columns = graph.node("Transpose", [blocks], {
    shape: ["B", inputs, BLOCK_ROWS],
    attributes: swap,
  });
  const products = graph.node("MatMul", [graph.input(name, [outputs, inputs]), columns], {
    shape: ["B", outputs, BLOCK_ROWS],
  });
  const rows = graph.node("Transpose", [products], { shape: ["B", BLOCK_ROWS, outputs], attributes: swap });
  return graph.node("Reshape", [rows, graph.integers([-1, outputs])], { shape: ["M", outputs] });
}

function norm(
  graph: GraphBuilder,
  x: Value,
  { name, size, epsilon }: { readonly name: string; readonly size: number; readonly epsilon: number },
): Value {
  return graph.node("SimplifiedLayerNormalization", [x, graph.input(name, [size])], {
    shape: x.shape,
    attributes: { epsilon: { float: epsilon }, axis: { int: -1 } },
  });
}

function add(graph: GraphBuilder, a: Value, b: Value): Value {
  return graph.node("Add", [a, b], { shape: a.shape });
}

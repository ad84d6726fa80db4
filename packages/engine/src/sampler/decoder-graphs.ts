/**
 * The decoder, cut into three graphs between which JavaScript applies the rotary embedding and writes keys and values
 * into the cache: `project` (norm, queries, keys and values), `layer` (attention and feed-forward, one layer), and
 * `head` (norm, logits, probabilities).
 *
 * The cut is what makes sampling reproducible. Every token, prompt or sampled, alone or in a batch, reads its own keys
 * and values from the same place in the cache, and its attention is one vector times one matrix (the batch dimensions
 * come first, the query dimension is 1 or the group of query heads). Then its bits depend on the tokens before it and
 * on the weights alone: not on the batch, the slot, the size of the cache, or how the prompt was cut into pieces. This
 * holds as long as a session has one thread (with more, the split of a product's inner dimension depends on the number
 * of rows) and a matrix product has at least two rows (a single row takes another kernel). `determinism.test.ts` checks
 * it.
 *
 * Dimensions: R rows (sequences), S tokens per row, M = R * S, T capacity of the cache in tokens.
 */
import { GraphBuilder } from "../graph/builder.ts";
import type { BuiltGraph } from "../graph/builder.ts";
import type { Value } from "../graph/onnx.ts";
import type { ModelConfig } from "../model-config.ts";

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
  const logits = graph.node("MatMul", [x, graph.input("head", [hiddenSize, vocabSize])], { shape });
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
  const qkv = graph.node("MatMul", [normed, graph.input("projection", [hiddenSize, width])], { shape });
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

function attention(graph: GraphBuilder, { hiddenSize, heads, kvHeads, headSize }: ModelConfig): Value {
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
  return graph.node("MatMul", [flat, graph.input("output", [width, hiddenSize])], {
    shape: ["M", hiddenSize],
  });
}

function feedForward(graph: GraphBuilder, x: Value, config: ModelConfig): Value {
  const { hiddenSize, feedForwardSize: width, normEpsilon: epsilon } = config;
  const normed = norm(graph, x, { name: "feedForwardNorm", size: hiddenSize, epsilon });
  const both = graph.node("MatMul", [normed, graph.input("gateUp", [hiddenSize, 2 * width])], {
    shape: ["M", 2 * width],
  });
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
  const product = graph.node("Mul", [activated, up], { shape });
  return graph.node("MatMul", [product, graph.input("down", [width, hiddenSize])], {
    shape: ["M", hiddenSize],
  });
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

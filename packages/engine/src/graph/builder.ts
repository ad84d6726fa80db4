import {
  encodeModel,
  type Attribute,
  type Constant,
  type Dimension,
  type ElementType,
  type OnnxNode,
  type Shape,
  type Value,
} from "./onnx.ts";

type NodeOptions = {
  readonly shape: Shape;
  readonly type?: ElementType;
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly domain?: "" | "com.microsoft";
};

/** A finished graph: `bytes` is what `InferenceSession.create` takes. */
export type BuiltGraph = {
  readonly bytes: Uint8Array;
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
  readonly nodeCount: number;
};

/**
 * Builds one ONNX graph. Values carry their shape; a dimension may be a name, which stands for a size that each run
 * chooses. Where an operator needs such a size as a number (a reshape with two unknown dimensions), the graph gets an
 * int64 input of shape [1] called `dimension:<name>`.
 *
 * Nodes that no output depends on are left out by `build`: onnxruntime would compute them.
 *
 * @example
 * const graph = new GraphBuilder();
 * const x = graph.input("x", ["N", 4]);
 * const w = graph.input("w", [8, 4]);
 * const y = graph.node("Gemm", [x, w], { shape: ["N", 8], attributes: { transB: { int: 1 } } });
 * graph.output("y", y);
 * const { bytes } = graph.build();
 */
export class GraphBuilder {
  readonly #nodes: OnnxNode[] = [];
  readonly #constants = new Map<string, Constant>();
  readonly #inputs = new Map<string, Value>();
  readonly #sizes = new Map<string, Value>();
  readonly #outputs: Value[] = [];
  #names = 0;

  /** Declares an input; asking for the same name again returns the same value. */
  input(name: string, shape: Shape, type: ElementType = "float32"): Value {
    const known = this.#inputs.get(name);
    if (known !== undefined) return known;
    const value = { name, shape, type };
    this.#inputs.set(name, value);
    return value;
  }

  /** An input that has been declared. */
  parameter(name: string): Value {
    const value = this.#inputs.get(name);
    if (value === undefined) throw new Error(`the graph has no input ${name}`);
    return value;
  }

  output(name: string, value: Value): void {
    this.#nodes.push({
      operator: "Identity",
      domain: "",
      inputs: [value.name],
      outputs: [name],
      attributes: {},
    });
    this.#outputs.push({ ...value, name });
  }

  /** A node with one output. `undefined` leaves out an optional operand. */
  node(operator: string, operands: readonly (Value | undefined)[], options: NodeOptions): Value {
    const [output] = this.nodes(operator, operands, { ...options, shapes: [options.shape] });
    if (output === undefined) throw new Error("a node has an output");
    return output;
  }

  /** A node with one output per shape. */
  nodes(
    operator: string,
    operands: readonly (Value | undefined)[],
    options: Omit<NodeOptions, "shape"> & { readonly shapes: readonly Shape[] },
  ): Value[] {
    const outputs = options.shapes.map((shape) => ({
      name: `${operator}_${this.#names++}`,
      shape,
      type: options.type ?? "float32",
    }));
    this.#nodes.push({
      operator,
      domain: options.domain ?? "",
      inputs: operands.map((operand) => operand?.name ?? ""),
      outputs: outputs.map((output) => output.name),
      attributes: options.attributes ?? {},
    });
    return outputs;
  }

  scalar(value: number): Value {
    return this.#constant(`scalar:${value}`, [], Float32Array.of(value));
  }

  /** A float32 constant. Equal `key`s share one constant; large tables belong into inputs instead. */
  floats(key: string, shape: readonly number[], data: Float32Array): Value {
    return this.#constant(`floats:${key}`, shape, data);
  }

  integers(values: readonly number[]): Value {
    return this.#constant(`integers:${values.join()}`, [values.length], BigInt64Array.from(values, BigInt));
  }

  /** The size of a named dimension as an int64 of shape [1]. */
  dimension(name: string): Value {
    return this.input(`dimension:${name}`, [1], "int64");
  }

  /** The sizes as one int64 vector, for operators that take a shape as an operand. */
  sizes(shape: Shape): Value {
    if (shape.every((size) => typeof size === "number")) return this.integers(shape);
    const key = shape.join();
    const known = this.#sizes.get(key);
    if (known !== undefined) return known;
    const value = this.node(
      "Concat",
      shape.map((size) => (typeof size === "string" ? this.dimension(size) : this.integers([size]))),
      { shape: [shape.length], type: "int64", attributes: { axis: { int: 0 } } },
    );
    this.#sizes.set(key, value);
    return value;
  }

  /** Reshapes without moving data. At most one dimension may be a name that is neither of `x` nor fed. */
  reshape(x: Value, shape: Shape): Value {
    const sizes = shape.map((dimension, axis): Dimension =>
      typeof dimension === "string" && dimension === x.shape[axis] ? 0 : dimension,
    );
    const unknown = sizes.filter((size) => typeof size === "string");
    const target =
      unknown.length <= 1
        ? this.integers(sizes.map((size) => (typeof size === "string" ? -1 : size)))
        : this.sizes(sizes);
    return this.node("Reshape", [x, target], { shape, type: x.type });
  }

  build(): BuiltGraph {
    const needed = new Set(this.#outputs.map((output) => output.name));
    const nodes: OnnxNode[] = [];
    for (const node of this.#nodes.toReversed()) {
      if (!node.outputs.some((output) => needed.has(output))) continue;
      for (const input of node.inputs) needed.add(input);
      nodes.push(node);
    }
    nodes.reverse();
    const inputs = [...this.#inputs.values()].filter((input) => needed.has(input.name));
    const constants = [...this.#constants.values()].filter(({ value }) => needed.has(value.name));
    const bytes = encodeModel({ nodes, constants, inputs, outputs: this.#outputs });
    return { bytes, inputs, outputs: this.#outputs, nodeCount: nodes.length };
  }

  #constant(key: string, shape: readonly number[], data: Float32Array | BigInt64Array): Value {
    const known = this.#constants.get(key);
    if (known !== undefined) return known.value;
    const type: ElementType = data instanceof Float32Array ? "float32" : "int64";
    const value: Value = { name: `constant_${this.#constants.size}`, shape, type };
    this.#constants.set(key, { value, data });
    return value;
  }
}

import { ProtobufWriter } from "./protobuf.ts";

/** The ONNX operator set that every graph of this engine declares. */
const OPSET_VERSION = 18;
const IR_VERSION = 9;

export type ElementType = "float32" | "int64" | "bool";

/** A number, or the name of a size that is only known when the graph runs. */
export type Dimension = number | string;
export type Shape = readonly Dimension[];

/** One edge of the graph: the output of a node, an input or a constant. */
export type Value = { readonly name: string; readonly shape: Shape; readonly type: ElementType };

export type Attribute =
  | { readonly int: number }
  | { readonly float: number }
  | { readonly string: string }
  | { readonly ints: readonly number[] };

export type OnnxNode = {
  readonly operator: string;
  /** "" is ONNX itself, "com.microsoft" the operators that onnxruntime adds. */
  readonly domain: "" | "com.microsoft";
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, Attribute>>;
};

export type Constant = { readonly value: Value; readonly data: Float32Array | BigInt64Array };

export type OnnxGraph = {
  readonly nodes: readonly OnnxNode[];
  readonly constants: readonly Constant[];
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
};

const ELEMENT_TYPES: Readonly<Record<ElementType, number>> = { float32: 1, int64: 7, bool: 9 };

/** Encodes a graph as an ONNX `ModelProto`. Field numbers are those of onnx.proto. */
export function encodeModel(graph: OnnxGraph): Uint8Array {
  const model = new ProtobufWriter();
  model.int(1, IR_VERSION);
  model.string(2, "osmosis");
  model.message(7, (writer) => {
    for (const node of graph.nodes) writer.message(1, (nested) => writeNode(nested, node));
    writer.string(2, "graph");
    for (const constant of graph.constants) writer.message(5, (nested) => writeTensor(nested, constant));
    for (const input of graph.inputs) writer.message(11, (nested) => writeValueInfo(nested, input));
    for (const output of graph.outputs) writer.message(12, (nested) => writeValueInfo(nested, output));
  });
  model.message(8, (writer) => writer.string(1, "").int(2, OPSET_VERSION));
  model.message(8, (writer) => writer.string(1, "com.microsoft").int(2, 1));
  return model.finish();
}

function writeNode(writer: ProtobufWriter, node: OnnxNode): void {
  for (const input of node.inputs) writer.string(1, input);
  for (const output of node.outputs) writer.string(2, output);
  writer.string(4, node.operator);
  for (const [name, attribute] of Object.entries(node.attributes)) {
    writer.message(5, (nested) => writeAttribute(nested, name, attribute));
  }
  if (node.domain !== "") writer.string(7, node.domain);
}

function writeAttribute(writer: ProtobufWriter, name: string, attribute: Attribute): void {
  writer.string(1, name);
  if ("float" in attribute) writer.float(2, attribute.float).int(20, 1);
  else if ("int" in attribute) writer.int(3, attribute.int).int(20, 2);
  else if ("string" in attribute) writer.string(4, attribute.string).int(20, 3);
  else {
    for (const value of attribute.ints) writer.int(8, value);
    writer.int(20, 7);
  }
}

function writeTensor(writer: ProtobufWriter, constant: Constant): void {
  const { value, data } = constant;
  for (const dimension of value.shape) writer.int(1, Number(dimension));
  writer.int(2, ELEMENT_TYPES[value.type]);
  writer.string(8, value.name);
  writer.bytes(9, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
}

function writeValueInfo(writer: ProtobufWriter, value: Value): void {
  writer.string(1, value.name);
  writer.message(2, (type) =>
    type.message(1, (tensor) => {
      tensor.int(1, ELEMENT_TYPES[value.type]);
      tensor.message(2, (shape) => {
        for (const dimension of value.shape) {
          shape.message(1, (nested) =>
            typeof dimension === "string" ? nested.string(2, dimension) : nested.int(1, dimension),
          );
        }
      });
    }),
  );
}

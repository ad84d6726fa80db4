/**
 * A typed ONNX graph builder with reverse-mode autodiff. `protobuf.ts` and `onnx.ts` encode, `builder.ts` builds,
 * `tape.ts` differentiates, `operations.ts` holds every differentiable operation (its forward and backward nodes side
 * by side), `session.ts` runs the result in onnxruntime.
 */
export { GraphBuilder, type BuiltGraph } from "./builder.ts";
export type { Dimension, Shape, Value } from "./onnx.ts";
export { loadRuntime, type GraphSession, type Runtime, type TensorData } from "./session.ts";
export { Tape } from "./tape.ts";

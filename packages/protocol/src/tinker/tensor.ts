import { z } from "zod";
import { OsmosisError } from "../errors.ts";
import { bytesOf, intOf, intsOf, readMessage, type Field, type MessageWriter } from "./protobuf.ts";

/** A tensor as JSON has it: flat numbers. Without a shape it has one axis. */
export const TinkerTensor = z.object({
  data: z.array(z.number()),
  dtype: z.enum(["float32", "int64"]),
  shape: z.array(z.int().nonnegative()).nullish(),
});
export type TinkerTensor = z.output<typeof TinkerTensor>;

const DTYPE_NUMBER = { float32: 1, int64: 2 } as const;

const ITEM_BYTES: Readonly<Record<number, number>> = { 1: 4, 2: 8, 3: 4, 4: 2 };

export function writeTensor(writer: MessageWriter, { data, dtype, shape }: TinkerTensor): void {
  writer.bytes(1, dtype === "float32" ? float32Bytes(data) : int64Bytes(data));
  writer.varint(3, DTYPE_NUMBER[dtype]);
  writer.packed(4, shape ?? [data.length]);
}

/** @throws OsmosisError `VALIDATION` for a sparse tensor, and for a type that the wire does not know. */
export function readTensor(field: Field): TinkerTensor {
  let bytes: Uint8Array = new Uint8Array();
  let dtype = 0;
  const shape: number[] = [];
  for (const part of readMessage(bytesOf(field))) {
    if (part.number === 1) bytes = bytesOf(part);
    if (part.number === 2) throw new OsmosisError("VALIDATION", "Sparse tensors are not supported.");
    if (part.number === 3) dtype = intOf(part);
    if (part.number === 4) shape.push(...intsOf(part));
  }
  return { ...numbersOf(bytes, dtype), ...(shape.length > 0 && { shape }) };
}

/** Numbers of a protobuf `DType`; integers become int64 and bfloat16 becomes float32, as in JSON. */
export function numbersOf(bytes: Uint8Array, dtype: number): Pick<TinkerTensor, "data" | "dtype"> {
  const size = ITEM_BYTES[dtype];
  if (size === undefined || bytes.length % size !== 0) {
    throw new OsmosisError("VALIDATION", `${bytes.length} bytes are no tensor of the type ${dtype}.`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read = (at: number): number => {
    if (dtype === 1) return view.getFloat32(at, true);
    if (dtype === 2) return Number(view.getBigInt64(at, true));
    if (dtype === 3) return view.getInt32(at, true);
    // The upper half of a float32.
    const float = new DataView(new ArrayBuffer(4));
    float.setUint16(0, view.getUint16(at, true));
    return float.getFloat32(0);
  };
  const data = Array.from({ length: bytes.length / size }, (_, index) => read(index * size));
  return { data, dtype: dtype === 1 || dtype === 4 ? "float32" : "int64" };
}

export function itemBytes(dtype: number): number {
  return ITEM_BYTES[dtype] ?? 1;
}

export function float32Bytes(data: readonly number[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(4 * data.length));
  for (const [index, value] of data.entries()) view.setFloat32(4 * index, value, true);
  return new Uint8Array(view.buffer);
}

export function int32Bytes(data: readonly number[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(4 * data.length));
  for (const [index, value] of data.entries()) view.setInt32(4 * index, value, true);
  return new Uint8Array(view.buffer);
}

export function int64Bytes(data: readonly number[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(8 * data.length));
  for (const [index, value] of data.entries()) view.setBigInt64(8 * index, BigInt(value), true);
  return new Uint8Array(view.buffer);
}

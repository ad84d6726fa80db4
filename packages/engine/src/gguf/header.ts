import { brokenGguf, openCursor, type Cursor } from "./cursor.ts";
import { TENSOR_TYPES, tensorType, unreadTypeName, type TensorType } from "./tensor-types.ts";

export type GgufValue = number | bigint | boolean | string | readonly GgufValue[];

export type GgufTensor = {
  readonly name: string;
  /** Row-major, as in safetensors: the last axis is contiguous. */
  readonly shape: readonly number[];
  readonly type: TensorType;
  /** In bytes from the start of the file. */
  readonly begin: number;
  readonly bytes: number;
};

export type GgufHeader = {
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
};

/**
 * Reads what a GGUF file of version 2 or 3 holds: metadata, and where its tensors lie. Every tensor lies inside the file
 * and overlaps no other.
 * @throws OsmosisError `VALIDATION` naming the file, and the key or tensor, for anything else.
 */
export function readGgufHeader(
  path: string,
  file: { readonly fd: number; readonly size: number },
): GgufHeader {
  const cursor = openCursor(path, file);
  if (file.size < 24 || cursor.take(4, "the magic number").toString("latin1") !== "GGUF") {
    throw brokenGguf(path, 'it does not begin with "GGUF"');
  }
  const version = cursor.u32();
  if (version !== 2 && version !== 3) {
    // The number of a big-endian file has its bytes the other way round.
    throw brokenGguf(path, version > 0xffff ? "it is big-endian" : `version ${version} (2 and 3 are)`);
  }
  const tensorCount = cursor.count(MIN_TENSOR_BYTES, "the number of tensors");
  const valueCount = cursor.count(MIN_VALUE_BYTES, "the number of metadata values");
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < valueCount; i++) {
    const key = cursor.string(`the name of metadata value ${i}`);
    if (metadata.has(key)) throw brokenGguf(path, `metadata value ${key} occurs twice`);
    metadata.set(key, readValue(path, cursor, cursor.u32(), key));
  }
  const alignment = metadata.get("general.alignment") ?? 32;
  if (typeof alignment !== "number" || !Number.isInteger(alignment) || alignment < 1) {
    throw brokenGguf(path, `general.alignment is ${String(alignment)}`);
  }
  const places = Array.from({ length: tensorCount }, (_, i) => readTensorPlace(path, cursor, i));
  const dataStart = Math.ceil(cursor.position() / alignment) * alignment;
  const tensors = new Map<string, GgufTensor>();
  for (const { offset, ...place } of places) {
    const begin = dataStart + offset;
    if (offset % alignment !== 0)
      throw brokenGguf(path, `tensor ${place.name} is not aligned to ${alignment} bytes`);
    if (begin + place.bytes > file.size) {
      throw brokenGguf(
        path,
        `tensor ${place.name} ends at byte ${begin + place.bytes} of ${file.size}: is it cut off?`,
      );
    }
    if (tensors.has(place.name)) throw brokenGguf(path, `tensor ${place.name} occurs twice`);
    tensors.set(place.name, { ...place, begin });
  }
  checkOverlaps(path, [...tensors.values()]);
  return { metadata, tensors };
}

const MIN_VALUE_BYTES = 8 + 4 + 1;
const MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8;

/** The format's own limit. */
const MAX_DIMENSIONS = 4;

function readTensorPlace(
  path: string,
  cursor: Cursor,
  index: number,
): Omit<GgufTensor, "begin"> & { offset: number } {
  const name = cursor.string(`the name of tensor ${index}`);
  const dimensions = cursor.u32();
  if (dimensions < 1 || dimensions > MAX_DIMENSIONS)
    throw brokenGguf(path, `tensor ${name} has ${dimensions} dimensions`);
  // The first size is that of the contiguous axis.
  const shape = Array.from({ length: dimensions }, () => cursor.u64(`a size of tensor ${name}`)).reverse();
  const typeNumber = cursor.u32();
  const type = tensorType(typeNumber);
  if (type === undefined) {
    const known = Object.keys(TENSOR_TYPES).join(", ");
    throw brokenGguf(path, `tensor ${name} is ${unreadTypeName(typeNumber)}; ${known} are supported`);
  }
  const { blockValues, blockBytes } = TENSOR_TYPES[type];
  const values = shape.reduce((product, size) => product * size, 1);
  const row = shape.at(-1) ?? 0;
  if (!Number.isSafeInteger(values * 4) || values === 0) {
    throw brokenGguf(path, `tensor ${name} has shape [${shape.join(", ")}]`);
  }
  if (row % blockValues !== 0) {
    throw brokenGguf(
      path,
      `tensor ${name} has rows of ${row} values, ${type} needs multiples of ${blockValues}`,
    );
  }
  const offset = cursor.u64(`the offset of tensor ${name}`);
  return { name, shape, type, bytes: (values / blockValues) * blockBytes, offset };
}

function checkOverlaps(path: string, tensors: readonly GgufTensor[]): void {
  let previous: GgufTensor | undefined;
  for (const tensor of tensors.toSorted((a, b) => a.begin - b.begin)) {
    if (previous !== undefined && tensor.begin < previous.begin + previous.bytes) {
      throw brokenGguf(path, `tensor ${tensor.name} overlaps tensor ${previous.name}`);
    }
    previous = tensor;
  }
}

const STRING = 8;
const ARRAY = 9;

/** Readers of the scalar types by their numbers, and their sizes in bytes. */
const SCALARS: Readonly<
  Record<number, { readonly bytes: number; readonly read: (at: Buffer) => GgufValue }>
> = {
  0: { bytes: 1, read: (at) => at.readUInt8() },
  1: { bytes: 1, read: (at) => at.readInt8() },
  2: { bytes: 2, read: (at) => at.readUInt16LE() },
  3: { bytes: 2, read: (at) => at.readInt16LE() },
  4: { bytes: 4, read: (at) => at.readUInt32LE() },
  5: { bytes: 4, read: (at) => at.readInt32LE() },
  6: { bytes: 4, read: (at) => at.readFloatLE() },
  7: { bytes: 1, read: (at) => at.readUInt8() !== 0 },
  10: { bytes: 8, read: (at) => at.readBigUInt64LE() },
  11: { bytes: 8, read: (at) => at.readBigInt64LE() },
  12: { bytes: 8, read: (at) => at.readDoubleLE() },
};

function readValue(path: string, cursor: Cursor, type: number, key: string): GgufValue {
  if (type === STRING) return cursor.string(key);
  if (type === ARRAY) {
    const itemType = cursor.u32();
    if (itemType === ARRAY) throw brokenGguf(path, `metadata value ${key} is an array of arrays`);
    const count = cursor.count(
      itemType === STRING ? 8 : (SCALARS[itemType]?.bytes ?? 1),
      `the length of ${key}`,
    );
    return Array.from({ length: count }, () => readValue(path, cursor, itemType, key));
  }
  const scalar = SCALARS[type];
  if (scalar === undefined) throw brokenGguf(path, `metadata value ${key} is of unknown type ${type}`);
  return scalar.read(cursor.take(scalar.bytes, key));
}

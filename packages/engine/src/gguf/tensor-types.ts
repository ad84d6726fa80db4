import { float16ToFloat32 } from "../half-float.ts";

/** Values per block, bytes per block, and what a block's bytes mean. */
type BlockFormat = {
  /** In GGML's numbering. */
  readonly id: number;
  readonly blockValues: number;
  readonly blockBytes: number;
  /** Writes `blockValues` values to `out`, from `to` on, for the block at `at`. */
  readonly read: (bytes: Buffer, at: number, out: Float32Array, to: number) => void;
};

export type TensorType = "F32" | "F16" | "Q4_0" | "Q4_1" | "Q8_0";

/** The tensor types that can be read. */
export const TENSOR_TYPES: Readonly<Record<TensorType, BlockFormat>> = {
  F32: {
    id: 0,
    blockValues: 1,
    blockBytes: 4,
    read: (bytes, at, out, to) => {
      out[to] = bytes.readFloatLE(at);
    },
  },
  F16: {
    id: 1,
    blockValues: 1,
    blockBytes: 2,
    read: (bytes, at, out, to) => {
      out[to] = half(bytes, at);
    },
  },
  Q4_0: {
    id: 2,
    blockValues: 32,
    blockBytes: 18,
    read: (bytes, at, out, to) => readNibbles(bytes, at + 2, out, to, half(bytes, at), -8 * half(bytes, at)),
  },
  Q4_1: {
    id: 3,
    blockValues: 32,
    blockBytes: 20,
    read: (bytes, at, out, to) => readNibbles(bytes, at + 4, out, to, half(bytes, at), half(bytes, at + 2)),
  },
  Q8_0: {
    id: 8,
    blockValues: 32,
    blockBytes: 34,
    read: (bytes, at, out, to) => {
      const scale = half(bytes, at);
      for (let i = 0; i < 32; i++) out[to + i] = scale * bytes.readInt8(at + 2 + i);
    },
  },
};

/** Types that are common in model files, but not read. */
const UNREAD_TYPES: Readonly<Record<number, string>> = {
  6: "Q5_0",
  7: "Q5_1",
  9: "Q8_1",
  10: "Q2_K",
  11: "Q3_K",
  12: "Q4_K",
  13: "Q5_K",
  14: "Q6_K",
  15: "Q8_K",
  16: "IQ2_XXS",
  17: "IQ2_XS",
  18: "IQ3_XXS",
  19: "IQ1_S",
  20: "IQ4_NL",
  21: "IQ3_S",
  22: "IQ2_S",
  23: "IQ4_XS",
  29: "IQ1_M",
  30: "BF16",
  39: "MXFP4",
};

/** What people call a type that is not read. */
export function unreadTypeName(id: number): string {
  return UNREAD_TYPES[id] ?? `GGML type ${id}`;
}

export function tensorType(id: number): TensorType | undefined {
  // Object.entries forgets the type of its keys.
  const entries = Object.entries(TENSOR_TYPES) as [TensorType, BlockFormat][];
  return entries.find(([, format]) => format.id === id)?.[0];
}

/** The values of a tensor, de-quantised; `bytes` holds whole blocks. */
export function dequantise(type: TensorType, bytes: Buffer): Float32Array {
  const { blockValues, blockBytes, read } = TENSOR_TYPES[type];
  const blocks = bytes.length / blockBytes;
  const values = new Float32Array(blocks * blockValues);
  for (let block = 0; block < blocks; block++) read(bytes, block * blockBytes, values, block * blockValues);
  return values;
}

/** 16 bytes of two values each: the low halves are the first 16 values. */
function readNibbles(
  bytes: Buffer,
  at: number,
  out: Float32Array,
  to: number,
  scale: number,
  offset: number,
): void {
  for (let i = 0; i < 16; i++) {
    const pair = bytes[at + i] ?? 0;
    out[to + i] = scale * (pair & 15) + offset;
    out[to + 16 + i] = scale * (pair >> 4) + offset;
  }
}

function half(bytes: Buffer, at: number): number {
  return float16ToFloat32(bytes.readUInt16LE(at));
}

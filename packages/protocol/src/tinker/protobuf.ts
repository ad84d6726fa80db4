/**
 * Protocol buffers, as far as the Tinker wire needs them: numbers, bytes, texts, messages and maps, without a schema
 * compiler. Unknown fields are handed out like known ones, and whoever reads skips them.
 */
import { OsmosisError } from "../errors.ts";

export type Field = { readonly number: number } & (
  | { readonly type: "varint"; readonly value: bigint }
  | { readonly type: "bytes"; readonly value: Uint8Array }
  | { readonly type: "fixed64" | "fixed32"; readonly value: DataView }
);

/** Writes one message; fields appear in the order of the calls. */
export type MessageWriter = {
  /** Omits 0, which is what an absent field means. */
  varint(field: number, value: number): void;
  double(field: number, value: number): void;
  bytes(field: number, value: Uint8Array): void;
  /** Omits the empty text, which is what an absent field means. */
  text(field: number, value: string): void;
  /** Several integers in one field. */
  packed(field: number, values: readonly number[]): void;
  message(field: number, write: (writer: MessageWriter) => void): void;
};

const VARINT = 0;
const FIXED64 = 1;
const LENGTH_PREFIXED = 2;
const FIXED32 = 5;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function writeMessage(write: (writer: MessageWriter) => void): Uint8Array {
  const parts: Uint8Array[] = [];
  const tag = (field: number, type: number) => parts.push(varintBytes(BigInt(field * 8 + type)));
  const block = (field: number, value: Uint8Array) => {
    tag(field, LENGTH_PREFIXED);
    parts.push(varintBytes(BigInt(value.length)), value);
  };
  write({
    varint(field, value) {
      if (value === 0) return;
      tag(field, VARINT);
      parts.push(varintBytes(BigInt(value)));
    },
    double(field, value) {
      tag(field, FIXED64);
      const bytes = new Uint8Array(8);
      new DataView(bytes.buffer).setFloat64(0, value, true);
      parts.push(bytes);
    },
    bytes: block,
    text(field, value) {
      if (value !== "") block(field, encoder.encode(value));
    },
    packed(field, values) {
      if (values.length > 0) block(field, concatBytes(values.map((value) => varintBytes(BigInt(value)))));
    },
    message(field, writeInner) {
      block(field, writeMessage(writeInner));
    },
  });
  return concatBytes(parts);
}

/**
 * The fields of a message in the order in which they were written.
 *
 * @throws OsmosisError `VALIDATION` when the bytes are no message.
 */
export function* readMessage(bytes: Uint8Array): Generator<Field> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[at++];
      if (byte === undefined) throw broken("ends in the middle of a number");
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, value);
    }
    throw broken("holds a number of more than ten bytes");
  };
  const take = (length: number): number => {
    const start = at;
    at += length;
    if (at > bytes.length) throw broken("ends in the middle of a field");
    return start;
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const number = Math.floor(tag / 8);
    switch (tag % 8) {
      case VARINT:
        yield { number, type: "varint", value: varint() };
        break;
      case FIXED64:
        yield { number, type: "fixed64", value: new DataView(bytes.buffer, view.byteOffset + take(8), 8) };
        break;
      case LENGTH_PREFIXED: {
        const length = Number(varint());
        const start = take(length);
        yield { number, type: "bytes", value: bytes.subarray(start, start + length) };
        break;
      }
      case FIXED32:
        yield { number, type: "fixed32", value: new DataView(bytes.buffer, view.byteOffset + take(4), 4) };
        break;
      default:
        throw broken(`holds a field of the unknown type ${tag % 8}`);
    }
  }
}

/** What a field holds, where its kind is known; a wrong kind is an error. */
export function bytesOf(field: Field): Uint8Array {
  if (field.type === "bytes") return field.value;
  throw broken(`has a number where field ${field.number} holds bytes`);
}

export function textOf(field: Field): string {
  return decoder.decode(bytesOf(field));
}

export function doubleOf(field: Field): number {
  if (field.type === "fixed64") return field.value.getFloat64(0, true);
  throw broken(`has no double in field ${field.number}`);
}

/** A signed integer. */
export function intOf(field: Field): number {
  if (field.type === "varint") return Number(BigInt.asIntN(64, field.value));
  throw broken(`has no integer in field ${field.number}`);
}

/** The integers of a repeated field, which may come packed or one by one. */
export function intsOf(field: Field): number[] {
  if (field.type !== "bytes") return [intOf(field)];
  const values: number[] = [];
  let value = 0n;
  let shift = 0n;
  for (const byte of field.value) {
    value |= BigInt(byte & 0x7f) << shift;
    shift += 7n;
    if (byte >= 0x80) continue;
    values.push(Number(BigInt.asIntN(64, value)));
    value = 0n;
    shift = 0n;
  }
  return values;
}

/** An entry of a map: its key, and the field of its value. */
export function entryOf(field: Field): { readonly key: string; readonly value: Field | undefined } {
  let key = "";
  let value: Field | undefined;
  for (const part of readMessage(bytesOf(field))) {
    if (part.number === 1) key = textOf(part);
    if (part.number === 2) value = part;
  }
  return { key, value };
}

/** Ten bytes hold a negative number, as the format has it. */
function varintBytes(value: bigint): Uint8Array {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, value);
  while (rest >= 0x80n) {
    bytes.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Uint8Array.from(bytes);
}

export function concatBytes(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function broken(what: string): OsmosisError {
  return new OsmosisError("VALIDATION", `The protobuf message ${what}.`);
}

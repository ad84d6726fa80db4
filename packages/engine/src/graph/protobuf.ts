/**
 * Writes protocol buffers: a message is a sequence of (field number, value) pairs, a nested message is a byte string.
 * Only what ONNX needs: varints, 32-bit floats, strings, bytes and messages.
 */
export class ProtobufWriter {
  #bytes = new Uint8Array(256);
  #length = 0;

  /** A field of an integer type; negative numbers take ten bytes, as in every protobuf. */
  int(field: number, value: number): this {
    this.#varint(field << 3);
    this.#varint(value);
    return this;
  }

  float(field: number, value: number): this {
    this.#varint((field << 3) | 5);
    this.#append(new Uint8Array(Float32Array.of(value).buffer));
    return this;
  }

  bytes(field: number, value: Uint8Array): this {
    this.#varint((field << 3) | 2);
    this.#varint(value.length);
    this.#append(value);
    return this;
  }

  string(field: number, value: string): this {
    return this.bytes(field, new TextEncoder().encode(value));
  }

  message(field: number, write: (writer: ProtobufWriter) => void): this {
    const nested = new ProtobufWriter();
    write(nested);
    return this.bytes(field, nested.finish());
  }

  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  #varint(value: number): void {
    let rest = BigInt.asUintN(64, BigInt(value));
    const encoded: number[] = [];
    while (rest > 127n) {
      encoded.push(Number(rest & 127n) | 128);
      rest >>= 7n;
    }
    encoded.push(Number(rest));
    this.#append(Uint8Array.from(encoded));
  }

  #append(chunk: Uint8Array): void {
    if (this.#length + chunk.length > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(2 * this.#bytes.length, this.#length + chunk.length));
      grown.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = grown;
    }
    this.#bytes.set(chunk, this.#length);
    this.#length += chunk.length;
  }
}

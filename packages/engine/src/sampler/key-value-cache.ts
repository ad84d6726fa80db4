import type { ModelConfig } from "../model-config.ts";

/** One slot, taken out of the cache as it lay there; two arrays per layer. */
export type StoredSlot = {
  readonly capacity: number;
  readonly keys: readonly Float32Array[];
  readonly values: readonly Float32Array[];
};

/**
 * Keys and values of the sequences under way: per layer one array of keys [slots, kvHeads, headSize, capacity] and one
 * of values [slots, kvHeads, capacity, headSize]. Keys lie transposed because that is how attention multiplies with
 * them. What lies beyond a sequence's length is finite, but otherwise arbitrary.
 */
export class KeyValueCache {
  readonly #kvHeads: number;
  readonly #headSize: number;
  readonly #layers: number;
  #slots = 0;
  #capacity = 0;
  #keys: Float32Array[];
  #values: Float32Array[];

  constructor({ layers, kvHeads, headSize }: Pick<ModelConfig, "layers" | "kvHeads" | "headSize">) {
    this.#layers = layers;
    this.#kvHeads = kvHeads;
    this.#headSize = headSize;
    this.#keys = Array.from({ length: layers }, () => new Float32Array(0));
    this.#values = Array.from({ length: layers }, () => new Float32Array(0));
  }

  /** How many sequences fit. */
  get slots(): number {
    return this.#slots;
  }

  /** How many tokens of each fit. */
  get capacity(): number {
    return this.#capacity;
  }

  get bytesPerToken(): number {
    return 2 * this.#layers * this.#kvHeads * this.#headSize * Float32Array.BYTES_PER_ELEMENT;
  }

  /** Keys of a layer for `count` slots from `first` on; a view. */
  keys(layer: number, first: number, count: number): Float32Array {
    return slotsOf(this.#keys[layer], first * this.#slotSize, count * this.#slotSize);
  }

  /** Values of a layer for `count` slots from `first` on; a view. */
  values(layer: number, first: number, count: number): Float32Array {
    return slotsOf(this.#values[layer], first * this.#slotSize, count * this.#slotSize);
  }

  /** Changes both sizes, and keeps what fits of the first `used` slots. */
  resize(slots: number, capacity: number, used: number): void {
    if (slots === this.#slots && capacity === this.#capacity) return;
    const heads = this.#kvHeads;
    const size = this.#headSize;
    const kept = Math.min(slots, this.#slots, used);
    const from = this.#capacity;
    const length = Math.min(from, capacity);
    this.#keys = this.#keys.map((old) => {
      const keys = new Float32Array(slots * heads * size * capacity);
      copyRuns(keys, old, { runs: kept * heads * size, length, to: capacity, from });
      return keys;
    });
    this.#values = this.#values.map((old) => {
      const values = new Float32Array(slots * heads * size * capacity);
      const runs = kept * heads;
      copyRuns(values, old, { runs, length: length * size, to: capacity * size, from: from * size });
      return values;
    });
    this.#slots = slots;
    this.#capacity = capacity;
  }

  copySlot(from: number, to: number): void {
    const size = this.#slotSize;
    for (const array of [...this.#keys, ...this.#values]) {
      array.copyWithin(to * size, from * size, (from + 1) * size);
    }
  }

  /** Overwrites with zeros, so that nothing infinite remains. */
  clearSlot(slot: number): void {
    const size = this.#slotSize;
    for (const array of [...this.#keys, ...this.#values]) array.fill(0, slot * size, (slot + 1) * size);
  }

  /** Copies a slot out of the cache. */
  storeSlot(slot: number): StoredSlot {
    const layers = Array.from({ length: this.#layers }, (_, layer) => layer);
    return {
      capacity: this.#capacity,
      keys: layers.map((layer) => this.keys(layer, slot, 1).slice()),
      values: layers.map((layer) => this.values(layer, slot, 1).slice()),
    };
  }

  /** Copies the first `length` tokens of a stored slot back; what follows them is overwritten, or not. */
  restoreSlot(slot: number, stored: StoredSlot, length: number): void {
    const heads = this.#kvHeads;
    const size = this.#headSize;
    const to = this.#capacity;
    const from = stored.capacity;
    for (const [layer, keys] of stored.keys.entries()) {
      copyRuns(this.keys(layer, slot, 1), keys, { runs: heads * size, length, to, from });
    }
    for (const [layer, values] of stored.values.entries()) {
      const scaled = { length: length * size, to: to * size, from: from * size };
      copyRuns(this.values(layer, slot, 1), values, { runs: heads, ...scaled });
    }
  }

  get #slotSize(): number {
    return this.#kvHeads * this.#headSize * this.#capacity;
  }
}

function slotsOf(array: Float32Array | undefined, begin: number, length: number): Float32Array {
  if (array === undefined || begin + length > array.length) throw new RangeError("no such layer or slot");
  return array.subarray(begin, begin + length);
}

/**
 * Copies `runs` stretches of `length` values; stretch i starts at i * `from` in the source and i * `to` in the target.
 * Where both lie alike, what is between the stretches is copied along: one long copy is quicker than many short ones.
 */
function copyRuns(
  target: Float32Array,
  source: Float32Array,
  { runs, length, to, from }: { runs: number; length: number; to: number; from: number },
): void {
  if (from === to) {
    target.set(source.subarray(0, runs * from));
    return;
  }
  for (let run = 0; run < runs; run++) {
    target.set(source.subarray(run * from, run * from + length), run * to);
  }
}

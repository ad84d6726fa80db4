import type { StoredSlot } from "./key-value-cache.ts";

/** The cache of a call that has ended: keys and values of all of `tokens`. */
export type StoredPrefix = {
  readonly conversation: string;
  readonly tokens: readonly number[];
  readonly slot: StoredSlot;
};

/**
 * Keeps the caches of ended calls, so that the next call of a conversation, or another that begins alike, need not
 * compute them again. The least recently used go first when there are more than `maxBytes`. What is found or not found
 * here never changes a result, only its time.
 */
export class PrefixStore {
  readonly #maxBytes: number;
  /** In order of last use. */
  readonly #prefixes = new Set<StoredPrefix>();
  #bytes = 0;

  constructor(options: { readonly maxBytes: number }) {
    this.#maxBytes = options.maxBytes;
  }

  /** Adds a prefix in place of those of the same conversation that it extends. */
  add(prefix: StoredPrefix): void {
    const { conversation, tokens } = prefix;
    for (const other of this.#prefixes) {
      if (other.conversation !== conversation) continue;
      if (commonPrefixLength(other.tokens, tokens) === other.tokens.length) this.#remove(other);
    }
    this.#prefixes.add(prefix);
    this.#bytes += bytesOf(prefix);
    for (const oldest of this.#prefixes) {
      if (this.#bytes <= this.#maxBytes) break;
      this.#remove(oldest);
    }
  }

  /** The prefix that shares most tokens with the beginning of `tokens`, and how many those are. */
  findLongest(
    tokens: readonly number[],
  ): { readonly prefix: StoredPrefix; readonly length: number } | undefined {
    let best: StoredPrefix | undefined;
    let length = 0;
    for (const prefix of this.#prefixes) {
      const common = commonPrefixLength(prefix.tokens, tokens);
      if (common <= length) continue;
      best = prefix;
      length = common;
    }
    if (best === undefined) return undefined;
    this.#prefixes.delete(best);
    this.#prefixes.add(best);
    return { prefix: best, length };
  }

  forget(conversation: string): void {
    for (const prefix of this.#prefixes) {
      if (prefix.conversation === conversation) this.#remove(prefix);
    }
  }

  clear(): void {
    this.#prefixes.clear();
    this.#bytes = 0;
  }

  #remove(prefix: StoredPrefix): void {
    if (this.#prefixes.delete(prefix)) this.#bytes -= bytesOf(prefix);
  }
}

/** How many tokens two sequences share at their beginning. */
export function commonPrefixLength(a: readonly number[], b: readonly number[]): number {
  const end = Math.min(a.length, b.length);
  let length = 0;
  while (length < end && a[length] === b[length]) length++;
  return length;
}

function bytesOf({ tokens, slot }: StoredPrefix): number {
  const arrays = [...slot.keys, ...slot.values];
  return arrays.reduce((sum, array) => sum + array.byteLength, 8 * tokens.length);
}

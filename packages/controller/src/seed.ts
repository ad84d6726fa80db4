import { createHash } from "node:crypto";

/** 64 hexadecimal digits that depend on all parts and their order. */
export function digestOf(...parts: readonly (string | number)[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}

/** A seed from 0 to 2^32 - 1 that depends on all parts and their order; unlike parts give unrelated seeds. */
export function seedOf(...parts: readonly (string | number)[]): number {
  return Number.parseInt(digestOf(...parts).slice(0, 8), 16);
}

/** As `seedOf`, but below 2^31: a trainer by URL may keep the seed of a call in 32 bits with a sign. */
export function samplingSeedOf(...parts: readonly (string | number)[]): number {
  return seedOf(...parts) & 0x7fff_ffff;
}

/** Numbers from 0 up to but not including 1, the same ones for the same seed (the generator mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A copy in an order that the seed decides. */
export function shuffled<Item>(items: readonly Item[], seed: number): Item[] {
  const random = randomFrom(seed);
  // A stable sort by independent keys is a fair shuffle: 32-bit keys tie too rarely to matter.
  return items
    .map((item) => ({ item, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ item }) => item);
}

/**
 * A number in [0, 1) that depends on nothing but the seed and the index: Threefry-2x32 with 20 rounds (Salmon and
 * others, "Parallel random numbers: as easy as 1, 2, 3", 2011). Requests that are sampled together share no state.
 * @param seed A non-negative safe integer.
 */
export function uniformAt(seed: number, index: number): number {
  const [high, low] = threefry([seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0], [index >>> 0, 0]);
  return ((high >>> 5) * 2 ** 26 + (low >>> 6)) / 2 ** 53;
}

type Pair = readonly [number, number];

const ROTATIONS = [13, 15, 26, 6, 17, 29, 16, 24];

/** Encrypts a counter; both halves are unsigned 32-bit integers. Exported for its known-answer test. */
export function threefry(key: Pair, counter: Pair): Pair {
  const keys = [key[0], key[1], 0x1bd11bda ^ key[0] ^ key[1]];
  let a = (counter[0] + key[0]) | 0;
  let b = (counter[1] + key[1]) | 0;
  for (let round = 0; round < 20; round++) {
    const rotation = ROTATIONS[round % 8] ?? 0;
    a = (a + b) | 0;
    b = ((b << rotation) | (b >>> (32 - rotation))) ^ a;
    if (round % 4 === 3) {
      const injection = (round + 1) / 4;
      a = (a + (keys[injection % 3] ?? 0)) | 0;
      b = (b + (keys[(injection + 1) % 3] ?? 0) + injection) | 0;
    }
  }
  return [a >>> 0, b >>> 0];
}

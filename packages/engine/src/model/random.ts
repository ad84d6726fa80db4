export type RandomSource = {
  /** Uniform in [0, 1) with 32 bits. */
  uniform(): number;
  /** Standard normal. */
  normal(): number;
};

/** A seeded generator (mulberry32) for initial weights; the same seed gives the same sequence on every machine. */
export function randomSource(seed: number): RandomSource {
  let state = seed | 0;
  const uniform = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    uniform,
    normal: () => {
      // Box and Muller 1958; 1 - u keeps the logarithm finite.
      const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
      return radius * Math.cos(2 * Math.PI * uniform());
    },
  };
}

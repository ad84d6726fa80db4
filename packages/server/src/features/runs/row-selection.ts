/**
 * The rows that an evaluation runs on, ascending: the first `limit`, or without a limit a random tenth, at least one.
 * The same seed draws the same rows.
 */
export function selectRows(rowCount: number, options: { limit: number | undefined; seed: number }): number[] {
  if (options.limit !== undefined) return range(Math.min(options.limit, rowCount));
  const wanted = Math.max(1, Math.floor(rowCount / 10));
  const random = seededRandom(options.seed);
  // Takes each row with the chance that still fills the selection exactly, in one pass.
  const chosen: number[] = [];
  for (let row = 0; row < rowCount && chosen.length < wanted; row += 1) {
    if (random() * (rowCount - row) < wanted - chosen.length) chosen.push(row);
  }
  return chosen;
}

function range(length: number): number[] {
  return Array.from({ length }, (_, index) => index);
}

/** Mulberry32: numbers from 0 up to 1, always the same for one seed. */
function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

import { randomSource } from "../src/model/random.ts";

/** A stream of numbers in [0, 1) that depends on its seed alone. */
export type Random = () => number;

export function seededRandom(seed: number): Random {
  const source = randomSource(seed);
  return () => source.uniform();
}

export function pick<T>(items: readonly T[], random: Random): T {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new Error("pick needs at least one item.");
  return item;
}

/** Fisher and Yates; returns a copy. */
export function shuffled<T>(items: readonly T[], random: Random): T[] {
  const copy = [...items];
  for (let index = copy.length - 1; index > 0; index -= 1) {
    const other = Math.floor(random() * (index + 1));
    // Both indices lie inside the array, which the type of an index access cannot say.
    [copy[index], copy[other]] = [copy[other] as T, copy[index] as T];
  }
  return copy;
}

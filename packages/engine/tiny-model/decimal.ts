/**
 * Exact decimals for the questions and their answers: an integer and how many of its digits stand after the point.
 * Floating point is kept out of the labels, so that a label is the product and not nearly the product.
 */
import type { Random } from "./seeded-random.ts";

export type Decimal = { readonly units: bigint; readonly places: number };

/** Drops trailing zeros after the point, so that equal values have equal fields. */
export function decimal(units: bigint, places: number): Decimal {
  let [shorter, left] = [units, places];
  while (left > 0 && shorter % 10n === 0n) {
    shorter /= 10n;
    left -= 1;
  }
  return { units: shorter, places: left };
}

/** The form that `String(number)` has in JavaScript: no trailing zeros, `0` before the point, no plus sign. */
export function decimalText({ units, places }: Decimal): string {
  const digits = (units < 0n ? -units : units).toString().padStart(places + 1, "0");
  const sign = units < 0n ? "-" : "";
  if (places === 0) return sign + digits;
  return `${sign}${digits.slice(0, -places)}.${digits.slice(-places)}`;
}

export function multiply(a: Decimal, b: Decimal): Decimal {
  return decimal(a.units * b.units, a.places + b.places);
}

export function add(a: Decimal, b: Decimal): Decimal {
  const places = Math.max(a.places, b.places);
  const scaled = (x: Decimal): bigint => x.units * 10n ** BigInt(places - x.places);
  return decimal(scaled(a) + scaled(b), places);
}

export function subtract(a: Decimal, b: Decimal): Decimal {
  return add(a, { units: -b.units, places: b.places });
}

/** The nearest whole number; a half goes away from zero. */
export function wholeNumber({ units, places }: Decimal): Decimal {
  const scale = 10n ** BigInt(places);
  const size = units < 0n ? -units : units;
  const rounded = (size * 2n + scale) / (scale * 2n);
  return decimal(units < 0n ? -rounded : rounded, 0);
}

/** One to four digits, at most two of them after the point, 35 % negative, never zero. */
export function drawDecimal(random: Random): Decimal {
  const digits = 1 + Math.floor(random() * 4);
  const low = 10 ** (digits - 1);
  const size = BigInt(low + Math.floor(random() * (10 * low - low)));
  const form = random();
  const places = Math.min(digits, form < 0.45 ? 0 : form < 0.75 ? 1 : 2);
  return decimal(random() < 0.35 ? -size : size, places);
}

/** Whether a pair of numbers, in any order, is kept away from all training: one in ten is. */
export function isHeldOut(a: Decimal, b: Decimal): boolean {
  // FNV-1a over both texts, sorted.
  let hash = 0x811c9dc5;
  for (const character of [decimalText(a), decimalText(b)].sort().join("*")) {
    hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193) >>> 0;
  }
  return hash % 10 === 0;
}

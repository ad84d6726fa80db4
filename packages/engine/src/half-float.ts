/** IEEE 754 half precision and bfloat16, as bit patterns in a `Uint16Array`. */

const halfBits = new Uint32Array(1);
const halfValue = new Float32Array(halfBits.buffer);

/** The value of a half-precision bit pattern; exact. */
export function float16ToFloat32(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The nearest half-precision bit pattern, ties to even; beyond the range it is infinity. */
export function float32ToFloat16(value: number): number {
  halfValue[0] = value;
  const bits = halfBits[0] ?? 0;
  const sign = (bits >>> 16) & 0x8000;
  const exponent = (bits >>> 23) & 0xff;
  const fraction = bits & 0x7fffff;
  if (exponent === 0xff) return sign | 0x7c00 | (fraction === 0 ? 0 : 0x200);
  const halfExponent = exponent - 112;
  if (halfExponent >= 0x1f) return sign | 0x7c00;
  if (halfExponent >= 1) {
    // A carry out of the fraction moves into the exponent, which is what rounding up to the next power of two means.
    return sign | roundShift((halfExponent << 23) | fraction, 13);
  }
  if (halfExponent < -10) return sign;
  return sign | roundShift(fraction | 0x800000, 14 - halfExponent);
}

/** The value of a bfloat16 bit pattern; exact. */
export function bfloat16ToFloat32(pattern: number): number {
  halfBits[0] = pattern << 16;
  return halfValue[0] ?? 0;
}

/** Divides by 2^shift and rounds to the nearest integer, ties to even. */
function roundShift(value: number, shift: number): number {
  const quotient = value >>> shift;
  const rest = value & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return rest > half || (rest === half && (quotient & 1) === 1) ? quotient + 1 : quotient;
}

import { describe, expect, test } from "vitest";
import { drawToken, likeliestToken } from "./choose-token.ts";
import { threefry, uniformAt } from "./random.ts";

const probabilities = Float32Array.of(0.125, 0, 0.5, 0.25, 0.125);

/** How often each token comes up for evenly spread numbers. */
function shares(topP: number, topK?: number, count = 4096): number[] {
  const counts = [0, 0, 0, 0, 0];
  for (let i = 0; i < count; i++) {
    const { token } = drawToken(probabilities, { topP, topK }, (i + 0.5) / count);
    counts[token] = (counts[token] ?? 0) + 1 / count;
  }
  return counts;
}

describe("drawToken", () => {
  test("draws every token as often as its probability says", () => {
    expect(shares(1)).toEqual([0.125, 0, 0.5, 0.25, 0.125]);
  });

  test("keeps the smallest set that reaches topP, equals by their id, scaled to add up to 1", () => {
    expect(shares(0.5)).toEqual([0, 0, 1, 0, 0]);
    expect(shares(0.8)[1]).toBe(0);
    expect(shares(0.8)[4]).toBe(0);
    expect(drawToken(probabilities, { topP: 0.8 }, 0.999)).toEqual({
      token: 0,
      logprob: Math.log(0.125 / 0.875),
    });
    expect(drawToken(probabilities, { topP: 0.75 }, 0)).toEqual({ token: 2, logprob: Math.log(0.5 / 0.75) });
  });

  test("keeps the topK likeliest, equals by their id, and of these what topP needs", () => {
    expect(shares(1, 1)).toEqual([0, 0, 1, 0, 0]);
    const [zero = 0, one, two = 0, three = 0, four] = shares(1, 3, 7000);
    expect([one, four]).toEqual([0, 0]);
    expect(zero).toBeCloseTo(1 / 7, 3);
    expect(two).toBeCloseTo(4 / 7, 3);
    expect(three).toBeCloseTo(2 / 7, 3);
    // Of 0.875 in all, 0.75 are six sevenths.
    expect(shares(0.8, 3)[0]).toBe(0);
    expect(drawToken(probabilities, { topP: 1, topK: 2 }, 0.999)).toEqual({
      token: 3,
      logprob: Math.log(0.25 / 0.75),
    });
    expect(shares(1, 5)).toEqual(shares(1));
    expect(shares(1, 4)[1]).toBe(0);
  });

  test("finds a nucleus among many unlikely tokens", () => {
    const flat = new Float32Array(100_000).fill(1e-5);
    const { token, logprob } = drawToken(flat, { topP: 0.5 }, 0.9999);
    expect(token).toBeLessThan(50_100);
    expect(logprob).toBeCloseTo(Math.log(1 / 50_000), 3);
  });

  test("never draws an impossible token, whatever rounding does", () => {
    expect(drawToken(Float32Array.of(0, 1, 0), { topP: 1 }, 0).token).toBe(1);
    expect(drawToken(Float32Array.of(0, 0.999_999, 0), { topP: 1 }, 1 - 2 ** -53).token).toBe(1);
  });
});

test("likeliestToken takes the first of equals", () => {
  expect(likeliestToken(Float32Array.of(0.2, 0.4, 0.4))).toEqual({
    token: 1,
    logprob: Math.log(Math.fround(0.4)),
  });
});

describe("random numbers", () => {
  test("threefry gives the published answers", () => {
    const pairs = [
      [
        [0, 0],
        [0, 0],
        [0x6b200159, 0x99ba4efe],
      ],
      [
        [0xffffffff, 0xffffffff],
        [0xffffffff, 0xffffffff],
        [0x1cb996fc, 0xbb002be7],
      ],
      [
        [0x13198a2e, 0x03707344],
        [0x243f6a88, 0x85a308d3],
        [0xc4923a9c, 0x483df7a0],
      ],
    ] as const;
    for (const [key, counter, expected] of pairs) expect(threefry(key, counter)).toEqual(expected);
  });

  test("are spread evenly, and differ by seed and by index", () => {
    const values = Array.from({ length: 4000 }, (_, i) => uniformAt(i % 40, Math.floor(i / 40)));
    const mean = values.reduce((a, b) => a + b) / values.length;
    expect(Math.abs(mean - 0.5)).toBeLessThan(0.02);
    expect(Math.min(...values)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...values)).toBeLessThan(1);
    expect(new Set(values).size).toBe(4000);
    expect(uniformAt(2 ** 40 + 1, 0)).not.toBe(uniformAt(1, 0));
  });
});

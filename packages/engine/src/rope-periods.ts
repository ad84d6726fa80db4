import type { ModelConfig } from "./model-config.ts";

/** How Llama 3.1 and later stretch the rotary embedding to contexts longer than those of pre-training. */
export type RopeScaling = {
  /** Slow rotations become so many times slower. */
  readonly factor: number;
  /** Rotations with fewer turns than this within `originalContext` are slowed down in full. */
  readonly lowTurns: number;
  /** Rotations with more turns than this stay as they are; in between both are mixed. */
  readonly highTurns: number;
  /** In tokens. */
  readonly originalContext: number;
};

/** Positions per radian of each pair of dimensions, `headSize / 2` numbers. */
export function ropePeriods({ headSize, ropeTheta, ropeScaling }: ModelConfig): number[] {
  const half = headSize / 2;
  return Array.from({ length: half }, (_, pair) => {
    const period = ropeTheta ** (pair / half);
    return ropeScaling === undefined ? period : period * ropeStretch(period, ropeScaling);
  });
}

/** How many times longer a period becomes. */
export function ropeStretch(
  period: number,
  { factor, lowTurns, highTurns, originalContext }: RopeScaling,
): number {
  const turns = originalContext / (2 * Math.PI * period);
  if (turns < lowTurns) return factor;
  if (turns > highTurns) return 1;
  const unscaled = (turns - lowTurns) / (highTurns - lowTurns);
  return 1 / ((1 - unscaled) / factor + unscaled);
}

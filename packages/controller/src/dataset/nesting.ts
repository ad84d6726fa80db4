/** Rows with deeper values are refused: many a program that reads them would fail on it. */
export const MAX_LEVELS = 100;

/** Whether a parsed JSON value holds objects and arrays inside each other more than `levels` deep. */
export function isDeeperThan(levels: number, value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((inner) => isDeeperThan(levels - 1, inner));
}

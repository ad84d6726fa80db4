/**
 * One line of JSON.
 *
 * @throws Error when a number is not finite: JSON cannot say it, and null would be a lie.
 */
export function stringifyStrict(value: unknown): string {
  return JSON.stringify(value, (key, item: unknown) => {
    if (typeof item === "number" && !Number.isFinite(item)) throw new Error(`${key} is not a finite number`);
    return item;
  });
}

export type JsonValue = null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue };

/**
 * A copy of `value` that JSON can carry, so that one odd leaf never costs the whole document. Numbers that are not finite
 * and cycles become null, a bigint becomes its digits, whatever has `toJSON` becomes what that returns; functions, symbols
 * and undefined are left out of objects and become null in arrays.
 */
export function toPlainJson(value: unknown): JsonValue {
  return plain(value, []) ?? null;
}

/** As {@link toPlainJson}, for values whose top level is an object. */
export function toPlainObject(value: Readonly<Record<string, unknown>>): Record<string, JsonValue> {
  return plainObject(value, [value]);
}

function plain(value: unknown, ancestors: readonly object[]): JsonValue | undefined {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      return Number.isFinite(value) ? value : null;
    case "bigint":
      return value.toString();
    case "object": {
      if (value === null || ancestors.includes(value)) return null;
      const inside = [...ancestors, value];
      if (Array.isArray(value)) return value.map((item) => plain(item, inside) ?? null);
      if ("toJSON" in value && typeof value.toJSON === "function") return plain(value.toJSON(), inside);
      return plainObject(value, inside);
    }
    default:
      return undefined;
  }
}

function plainObject(value: object, inside: readonly object[]): Record<string, JsonValue> {
  const copy: Record<string, JsonValue> = {};
  for (const [key, item] of Object.entries(value)) {
    const plainItem = plain(item, inside);
    if (plainItem !== undefined && key !== "__proto__") copy[key] = plainItem;
  }
  return copy;
}

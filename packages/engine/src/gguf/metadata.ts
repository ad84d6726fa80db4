import { OsmosisError } from "@osmosis/protocol";
import type { GgufHeader, GgufValue } from "./header.ts";

export type MetadataReader = ReturnType<typeof metadataReader>;

/** Typed access to metadata; a value of another type is an OsmosisError `VALIDATION` that names file and key. */
export function metadataReader(path: string, metadata: GgufHeader["metadata"]) {
  function wrong(key: string, wanted: string): OsmosisError {
    const value = metadata.get(key);
    const found = value === undefined ? "is missing" : `is ${Array.isArray(value) ? "a list" : typeof value}`;
    return new OsmosisError("VALIDATION", `${path}: metadata value ${key} ${found}, ${wanted} is needed.`);
  }

  function optional<T>(
    key: string,
    wanted: string,
    accept: (value: GgufValue) => T | undefined,
  ): T | undefined {
    const value = metadata.get(key);
    if (value === undefined) return undefined;
    const accepted = accept(value);
    if (accepted === undefined) throw wrong(key, wanted);
    return accepted;
  }

  function required<T>(key: string, wanted: string, accept: (value: GgufValue) => T | undefined): T {
    const value = optional(key, wanted, accept);
    if (value === undefined) throw wrong(key, wanted);
    return value;
  }

  return {
    number: (key: string) => required(key, "a number", asNumber),
    optionalNumber: (key: string) => optional(key, "a number", asNumber),
    text: (key: string) => required(key, "a text", asText),
    optionalText: (key: string) => optional(key, "a text", asText),
    optionalFlag: (key: string) => optional(key, "a flag", asFlag),
    texts: (key: string) => required(key, "a list of texts", (value) => listOf(value, asText)),
    numbers: (key: string) => required(key, "a list of numbers", (value) => listOf(value, asNumber)),
  };
}

function asNumber(value: GgufValue): number | undefined {
  if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : undefined;
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

function asText(value: GgufValue): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function asFlag(value: GgufValue): boolean | undefined {
  return typeof value === "boolean" ? value : undefined;
}

function listOf<T>(value: GgufValue, accept: (item: GgufValue) => T | undefined): readonly T[] | undefined {
  if (typeof value !== "object") return undefined;
  const items = value.map(accept).filter((item) => item !== undefined);
  return items.length === value.length ? items : undefined;
}

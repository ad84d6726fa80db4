import { OsmosisError } from "@osmosis/protocol";

const REASONS: Readonly<Record<string, string>> = {
  "22003": "A number of the request is too large to be kept.",
  "22021": "A text of the request holds a NUL character, which cannot be kept.",
  "22P05": "A text of the request holds a character that cannot be kept.",
};

/** The VALIDATION error for a value that Postgres cannot hold; `undefined` for other failures. */
export function refusedValue(error: unknown): OsmosisError | undefined {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const reason = REASONS[code];
  if (reason === undefined) return undefined;
  return new OsmosisError("VALIDATION", reason, {
    hint: "Change it, and send the request again.",
    cause: error,
  });
}

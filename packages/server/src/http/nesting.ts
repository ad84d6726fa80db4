import { OsmosisError } from "@osmosis/protocol";

/** Arrays and objects inside each other; what writes JSON, here and in the database, gives up at some thousands. */
const MAX_DEPTH = 256;

/**
 * Refuses a document whose arrays and objects are nested deeper than every part can follow.
 *
 * @throws {OsmosisError} VALIDATION.
 */
export function refuseDeepNesting(json: unknown): void {
  let level = [json].filter(isNested);
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) {
      throw new OsmosisError(
        "VALIDATION",
        `The request body is nested deeper than the ${MAX_DEPTH} levels that can be kept.`,
        { hint: "Send it flatter." },
      );
    }
    level = level.flatMap((value) => Object.values(value).filter(isNested));
  }
}

function isNested(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

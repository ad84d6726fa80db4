import { OsmosisError } from "@osmosis/protocol";

/**
 * The segments of a blob key. A key has no empty, `.` or `..` segment, no backslash and no control character, and no
 * segment longer than 200 bytes, so it is a safe path in every store.
 *
 * @throws {OsmosisError} VALIDATION for any other key.
 */
export function checkBlobKey(key: string): string[] {
  const segments = key.split("/");
  for (const segment of segments) {
    const isBad =
      segment === "" ||
      segment === "." ||
      segment === ".." ||
      // oxlint-disable-next-line no-control-regex -- control characters are what is refused
      /[\\\u0000-\u001f\u007f]/.test(segment) ||
      Buffer.byteLength(segment) > 200;
    if (isBad) {
      throw new OsmosisError("VALIDATION", `The path ${JSON.stringify(key)} cannot be stored.`, {
        hint: "Use relative paths without `..`, backslashes and control characters, and names of at most 200 bytes.",
      });
    }
  }
  return segments;
}

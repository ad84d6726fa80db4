import { OsmosisError } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { hideSecrets, parseSecrets } from "./secrets.ts";

test("a secrets file holds names and values, comments, exports and quotes", () => {
  const text = "\uFEFF# keys\nA=1\r\nexport B = \"two words\"\n\nC='it=is # not a comment'\nD=\n";
  expect(parseSecrets(text, "f")).toEqual({ A: "1", B: "two words", C: "it=is # not a comment", D: "" });
});

test("a line that cannot be read is named without its text", () => {
  const text = "A=1\nsk-very-secret\n";
  expect(() => parseSecrets(text, "keys.env")).toThrow(/^keys\.env:2 is not of the form NAME=value\.$/);
});

test("values that travelled with a request do not come back in its error", () => {
  const error = new OsmosisError("VALIDATION", "bad value abc123", {
    details: { body: { value: ["abc123x"] } },
  });
  const hidden = hideSecrets(error, { provided: { A: "abc123", B: "abc123x" }, sources: [] });
  expect(hidden.message).toBe("bad value [REDACTED]");
  expect(hidden.details).toEqual({ body: { value: ["[REDACTED]"] } });
});

import { OsmosisError } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { isOutage } from "./outage.ts";

test("a platform that cannot be reached or is starting comes back; a bug or a refusal does not", () => {
  expect(isOutage(new OsmosisError("NETWORK", "no answer"))).toBe(true);
  expect(isOutage(new OsmosisError("PLATFORM_ERROR", "starting", { details: { status_code: 503 } }))).toBe(
    true,
  );
  expect(isOutage(new OsmosisError("PLATFORM_ERROR", "bug", { details: { status_code: 500 } }))).toBe(false);
  expect(isOutage(new OsmosisError("PLATFORM_ERROR", "an answer that does not fit"))).toBe(false);
  expect(isOutage(new OsmosisError("NOT_FOUND", "no run"))).toBe(false);
  expect(isOutage(new Error("bug"))).toBe(false);
});

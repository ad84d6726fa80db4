import { expect, test } from "vitest";
import { causeIn } from "./environment.ts";

test("of what npm says the cause is told, not the manual that follows it", () => {
  const said = [
    "npm error code EUSAGE",
    "npm error",
    "npm error `npm ci` needs a lock file that is in sync.",
  ];
  const manual = Array.from({ length: 40 }, (_, n) => `npm error   --option-${n}`);
  expect(causeIn([...said, ...manual])).toMatch(
    /^code EUSAGE \| `npm ci` needs a lock file that is in sync\. \|/,
  );
  expect(causeIn([...said, ...manual]).length).toBeLessThan(200);
  expect(causeIn(["", "npm error"])).toBe("it printed nothing.");
});

import { expect, test } from "vitest";
import { render } from "./render.ts";
import type { DetailResult } from "./result.ts";
import { createStyle } from "./style.ts";

test("a name from elsewhere turns no direction, neither as a label nor as a value", () => {
  const result: DetailResult = {
    kind: "detail",
    data: {},
    fields: [
      ["used\u202eloot", "a\u001b[2Jb"],
      ["View", "here"],
    ],
  };
  const io = { stdout: { columns: () => 80 } };
  const style = createStyle(false, {});
  expect(render(result, { mode: "rich", style, io })).toBe("  used�loot  a�[2Jb\n  View       here\n");
  expect(render(result, { mode: "plain", style, io })).toBe("used�loot: a�[2Jb\nView: here\n");
});

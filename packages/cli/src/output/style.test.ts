import { expect, test } from "vitest";
import { printable } from "./style.ts";

test("text from elsewhere moves no cursor and turns no direction", () => {
  expect(printable("a\u001b[31mb\u0007 c\u202egnp.exe \u2066d")).toBe("a�[31mb� c�gnp.exe �d");
  expect(printable("e\u0301 😀\tשלום\n")).toBe("e\u0301 😀\tשלום\n");
});

import { expect, test } from "vitest";
import { fullStorage, storageProblem } from "./storage-problem.ts";

function failure(code: string, message = "failed"): Error {
  return Object.assign(new Error(message), { code });
}

test("a full disk is told in the words of the system, of Postgres and of a program that ran", () => {
  for (const error of [
    failure("ENOSPC"),
    failure("53100", 'could not extend file "base/5/16384"'),
    new Error("npm failed: nospc There was no space left on device"),
    new Error("outer", { cause: failure("EDQUOT") }),
  ]) {
    expect(fullStorage(error, "/data")).toMatchObject({
      code: "STORAGE",
      message: expect.stringContaining("/data"),
      hint: "Free some space, or choose another folder with --data.",
    });
  }
});

test("a missing file is a fault of the place only when the place is opened", () => {
  expect(fullStorage(failure("ENOENT"), "/data")).toBeUndefined();
  expect(storageProblem(failure("ENOENT"), "/data")).toMatchObject({ code: "STORAGE" });
  expect(storageProblem(failure("42P01", "relation does not exist"), "/data")).toBeUndefined();
});

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { runInstaller, type InstallRequest } from "./installer.ts";

/** Runs a program that stands for an installer. */
async function install(program: string, changes: Partial<InstallRequest> = {}) {
  const folder = await mkdtemp(join(tmpdir(), "osmosis-installer-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  return await runInstaller([process.execPath, "-e", program], {
    folder,
    environment: {},
    onLine: () => {},
    signal: new AbortController().signal,
    ...changes,
  });
}

const NEVER_ENDS = "setInterval(() => {}, 1000)";

test("an installer that ends has its exit code and what it said first, however much it says", async () => {
  expect(await install("console.log('one'); console.error('two'); process.exitCode = 3")).toEqual({
    code: 3,
    said: expect.arrayContaining(["one", "two"]),
  });
  const { code, said } = await install("for (let n = 0; n < 5000; n++) console.log(n)");
  expect(code).toBe(0);
  expect(said).toEqual(Array.from({ length: 200 }, (_, n) => String(n)));
});

test("an installer that never ends is ended after a deadline, and named", async () => {
  await expect(install(NEVER_ENDS, { timeoutMs: 300 })).rejects.toMatchObject({
    code: "VALIDATION",
    message: expect.stringMatching(/setInterval.* did not end within 0\.005 minutes\./),
    hint: expect.stringContaining("registry"),
  });
});

test("an installer ends when the run does, with the run's reason", async () => {
  const stop = new AbortController();
  const program = `console.log("here"); ${NEVER_ENDS}`;
  const installing = install(program, {
    signal: stop.signal,
    onLine: () => stop.abort(new Error("somebody asked for the end of the run")),
  });
  await expect(installing).rejects.toThrow("somebody asked for the end of the run");
});

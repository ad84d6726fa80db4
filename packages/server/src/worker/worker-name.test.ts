import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { defaultWorkerName } from "./worker-name.ts";

test("a worker keeps its name for its folder, and two that run at once never share one", async () => {
  const root = await mkdtemp(join(tmpdir(), "osmosis-names-"));
  try {
    const nameOf = (folder: string) => defaultWorkerName(join(root, folder), "host");
    const first = await nameOf("a");
    const beside = await nameOf("a");
    const elsewhere = await nameOf("b");
    expect(first.name).toMatch(/^host-[0-9a-f]{8}$/);
    expect(new Set([first.name, beside.name, elsewhere.name]).size).toBe(3);
    await first[Symbol.asyncDispose]();
    await beside[Symbol.asyncDispose]();
    await using again = await nameOf("a");
    expect(again.name).toBe(first.name);
    expect((await defaultWorkerName(join(root, "b"), "other")).name).toMatch(/^other-/);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
});

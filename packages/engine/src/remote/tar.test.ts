import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { readTar, writeTar } from "./tar.ts";

const run = promisify(execFile);
const FILES = new Map([
  ["adapter_config.json", new TextEncoder().encode('{"r": 8}')],
  ["adapter_model.safetensors", new Uint8Array(1500).fill(7)],
]);

test("archives are those of tar, both ways", async () => {
  const folder = await mkdtemp(join(tmpdir(), "osmosis-tar-"));
  try {
    await writeFile(join(folder, "ours.tar"), writeTar(FILES));
    await run("tar", ["-xf", "ours.tar"], { cwd: folder });
    for (const [name, content] of FILES) {
      expect(new Uint8Array(await readFile(join(folder, name)))).toEqual(content);
    }
    await run("tar", ["-cf", "theirs.tar", ...[...FILES.keys()].map((name) => `./${name}`)], { cwd: folder });
    const read = readTar(new Uint8Array(await readFile(join(folder, "theirs.tar"))));
    expect(new Map([...read].map(([name, content]) => [name, new Uint8Array(content)]))).toEqual(FILES);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("an archive that was cut or is none is refused", () => {
  const whole = writeTar(FILES);
  expect(() => readTar(whole.subarray(0, 1200))).toThrow("ends too early");
  expect(() => readTar(new TextEncoder().encode("<html>".repeat(200)))).toThrow("no tar archive");
});

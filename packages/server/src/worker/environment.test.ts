import { createReadStream } from "node:fs";
import { mkdir, mkdtemp, readFile, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "tar";
import { afterEach, beforeEach, expect, test } from "vitest";
import { childEnvironment, prepareEnvironment } from "./environment.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-environment-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** Prepares a commit that holds these files. */
async function prepare(commit: string, files: Readonly<Record<string, string>>): Promise<string> {
  const code = join(folder, `code-${commit}`);
  await mkdir(code, { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(code, name), text);
  const archive = join(folder, `${commit}.tar`);
  await create({ cwd: code, file: archive }, Object.keys(files));
  return prepareEnvironment({
    root: join(folder, "environments"),
    commit,
    source: (use) => use(createReadStream(archive)),
    environment: childEnvironment(process.env),
    onLine: () => {},
    signal: new AbortController().signal,
  });
}

test("a commit's files are laid out once", async () => {
  const first = await prepare("a", { "notes.md": "one" });
  expect(await readFile(join(first, "notes.md"), "utf8")).toBe("one");
  expect(await prepare("a", { "notes.md": "two" })).toBe(first);
  expect(await readFile(join(first, "notes.md"), "utf8")).toBe("one");
});

test("dependencies that cannot be installed fail with npm's words, and leave nothing half-made", async () => {
  const broken = { "package.json": `{"name":"toys","dependencies":{"none":"file:../nowhere"}} oops` };
  await expect(prepare("b", broken)).rejects.toMatchObject({
    code: "VALIDATION",
    message: expect.stringContaining("npm could not install"),
  });
  expect(await readdir(join(folder, "environments"))).toEqual([]);
});

test("ten environments are kept, those that were used last; what a killed worker left half-made goes", async () => {
  const environments = join(folder, "environments");
  for (let n = 0; n < 12; n++) {
    const ready = join(environments, `old-${n}`, ".osmosis-ready");
    await mkdir(join(environments, `old-${n}`), { recursive: true });
    await writeFile(ready, "");
    await utimes(ready, 1000 + n, 1000 + n);
  }
  // No process has that id: it is above what any system gives out.
  await mkdir(join(environments, "c.99999999.building"));
  await mkdir(join(environments, `d.${process.pid}.building`));
  await prepare("old-0", { "notes.md": "" });
  await prepare("new", { "notes.md": "" });
  expect(new Set(await readdir(environments))).toEqual(
    new Set([
      "new",
      "old-0",
      ...[4, 5, 6, 7, 8, 9, 10, 11].map((n) => `old-${n}`),
      `d.${process.pid}.building`,
    ]),
  );
});

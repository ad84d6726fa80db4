import { mkdir, readFile, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../../test/folder.ts";
import { isOutdated, replaceFolder } from "./dashboard.ts";

/** Writes a file, changed so many seconds after 2020 began; its folders are as old as the checkout. */
async function put(root: string, path: string, second: number): Promise<void> {
  const file = join(root, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, "");
  await touch(file, second);
  for (let folder = dirname(file); folder !== root; folder = dirname(folder)) await touch(folder, 0);
}

async function touch(path: string, second: number): Promise<void> {
  const time = new Date(Date.UTC(2020, 0, 1, 0, 0, second));
  await utimes(path, time, time);
}

test("the dashboard is built again when a file that it is made of has changed since, or is gone", async () => {
  await using folder = await temporaryFolder();
  const root = folder.path;
  await put(root, "packages/web/index.html", 0);
  await put(root, "packages/web/src/runs/page.tsx", 10);
  await put(root, "packages/protocol/src/routes/runs.ts", 10);
  expect(await isOutdated(root)).toBe(true);
  await put(root, "packages/web/dist/index.html", 20);
  expect(await isOutdated(root)).toBe(false);

  for (const path of ["packages/protocol/src/routes/runs.ts", "packages/web/src/runs/page.tsx"]) {
    await put(root, path, 30);
    expect(await isOutdated(root)).toBe(true);
    await put(root, path, 10);
    expect(await isOutdated(root)).toBe(false);
  }
  await put(root, "packages/protocol/src/routes/runs.test.ts", 30);
  expect(await isOutdated(root)).toBe(false);
  await rm(join(root, "packages/web/src/runs/page.tsx"));
  expect(await isOutdated(root)).toBe(true);
});

test("of two builds that end at the same time one is served, whole", async () => {
  await using folder = await temporaryFolder();
  const place = join(folder.path, "dist");
  const names = ["old", "one", "two"];
  for (const name of names) {
    await mkdir(join(folder.path, name));
    await writeFile(join(folder.path, name, "index.html"), name);
  }
  await replaceFolder(join(folder.path, "old"), place);
  expect(await readFile(join(place, "index.html"), "utf8")).toBe("old");
  await Promise.all(["one", "two"].map((name) => replaceFolder(join(folder.path, name), place)));
  expect(["one", "two"]).toContain(await readFile(join(place, "index.html"), "utf8"));
  expect(await readdir(place)).toEqual(["index.html"]);
});

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryFolder } from "../test/folder.ts";
import { withDotenv } from "./dotenv.ts";

const nothing = { file: undefined, platformFlag: undefined };

test("the nearest .env upwards lies beneath the process's variables", async () => {
  await using folder = await temporaryFolder();
  await mkdir(join(folder.path, "a/b"), { recursive: true });
  await writeFile(join(folder.path, ".env"), "KEY=far\nOTHER=far\n");
  await writeFile(join(folder.path, "a/.env"), "KEY=near\nMINE=file\n");
  const env = withDotenv({ env: { MINE: "process" }, cwd: join(folder.path, "a/b"), ...nothing });
  expect(env).toEqual({ KEY: "near", MINE: "process" });
});

test("a named file that is missing is an error", async () => {
  await using folder = await temporaryFolder();
  expect(() => withDotenv({ env: {}, cwd: folder.path, ...nothing, file: "no.env" })).toThrow(
    /does not exist/,
  );
});

test("process and file may not disagree about the platform", async () => {
  await using folder = await temporaryFolder();
  await writeFile(join(folder.path, ".env"), "OSMOSIS_PLATFORM_URL=https://a.example.com\n");
  const env = { OSMOSIS_PLATFORM_URL: "https://b.example.com" };
  expect(() => withDotenv({ env, cwd: folder.path, ...nothing })).toThrow(/differently/);
  expect(
    withDotenv({ env, cwd: folder.path, file: undefined, platformFlag: "https://c.example.com" }),
  ).toMatchObject(env);
  const same = { OSMOSIS_PLATFORM_URL: "HTTPS://A.example.com/" };
  expect(withDotenv({ env: same, cwd: folder.path, ...nothing })).toMatchObject(same);
});

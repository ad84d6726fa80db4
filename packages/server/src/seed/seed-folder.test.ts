import { mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { packPackages } from "./pack.ts";
import { runProgram } from "./run-program.ts";
import { createSeed } from "./seed-folder.ts";

const sourceFolder = resolve(import.meta.dirname, "../../../..");
const { PATH = "", HOME = "" } = process.env;
const toolEnvironment = { PATH, HOME };

describe("the seed of a workspace", { timeout: 240_000 }, () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "osmosis-seed-"));
    await mkdir(join(folder, "template/node_modules/junk"), { recursive: true });
    await mkdir(join(folder, "template/.agents"), { recursive: true });
    await writeFile(join(folder, "template/.env"), "SECRET=1");
    await symlink(".agents", join(folder, "template/link"));
    await writeFile(
      join(folder, "template/package.json"),
      JSON.stringify({ name: "w", private: true, type: "module", dependencies: { "@osmosis/sdk": "0.0.0" } }),
    );
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  test("vendors the SDK of the checkout, which installs by the lock and runs", async () => {
    const warnings: object[] = [];
    const seed = createSeed({
      templateFolder: join(folder, "template"),
      sourceFolder,
      cacheFolder: join(folder, "cache"),
      toolEnvironment,
      log: (entry) => warnings.push(entry),
    });
    const [made, same] = await Promise.all([seed(), seed()]);
    expect(made).toBe(same);
    expect(await seed()).toBe(made);
    expect((await readdir(made)).toSorted()).toEqual([
      ".agents",
      "link",
      "package-lock.json",
      "package.json",
      "vendor",
    ]);
    expect(await readlink(join(made, "link"))).toBe(".agents");
    const manifest: unknown = JSON.parse(await readFile(join(made, "package.json"), "utf8"));
    expect(manifest).toMatchObject({
      dependencies: {
        "@osmosis/sdk": "file:vendor/osmosis-sdk-0.1.0.tgz",
        "@osmosis/protocol": "file:vendor/osmosis-protocol-0.1.0.tgz",
      },
    });
    expect(warnings).toEqual([]);
    expect(await readFile(join(made, "package-lock.json"), "utf8")).not.toContain('"resolved": "http');

    await runProgram("npm", ["ci", "--prefer-offline", "--no-audit", "--no-fund"], {
      folder: made,
      environment: toolEnvironment,
    });
    const probe =
      'const sdk = await import(process.argv[1]); if (!("AgentWorkflow" in sdk)) throw new Error("empty");';
    await runProgram(process.execPath, ["--input-type=module", "--eval", probe, "@osmosis/sdk"], {
      folder: made,
      environment: toolEnvironment,
    });
  });

  test("packing twice gives the same files, without building them again", async () => {
    const options = {
      sourceFolder,
      cacheFolder: join(folder, "cache/packages"),
      environment: toolEnvironment,
    };
    const first = await packPackages(options);
    expect(first.map(({ name, version }) => `${name}@${version}`)).toEqual([
      "@osmosis/protocol@0.1.0",
      "@osmosis/sdk@0.1.0",
    ]);
    expect(await packPackages(options)).toEqual(first);
  });

  test("without sources there is nothing to vendor", async () => {
    const seed = createSeed({
      templateFolder: join(folder, "template/.agents"),
      sourceFolder: folder,
      cacheFolder: join(folder, "other-cache"),
      toolEnvironment,
      log: () => {},
    });
    expect(await readdir(await seed())).toEqual([]);
  });
});

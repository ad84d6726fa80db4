import { createHash, randomUUID } from "node:crypto";
import {
  access,
  copyFile,
  cp,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  writeFile,
} from "node:fs/promises";
import { basename, join } from "node:path";
import { errorMessage } from "@osmosis/protocol";
import { z } from "zod";
import type { Log } from "../platform.ts";
import { packPackages, type PackedPackage } from "./pack.ts";
import { runProgram } from "./run-program.ts";

export interface SeedOptions {
  templateFolder: string;
  sourceFolder: string;
  cacheFolder: string;
  toolEnvironment: Readonly<Record<string, string>>;
  log: Log;
}

/** What a template folder may hold on a developer's disk without belonging to the template. */
const NOT_SEEDED = new Set(["node_modules", ".git", ".venv", "__pycache__", ".env", ".DS_Store", ".osmosis"]);

/**
 * The folder whose files every new repository begins with: the workspace template, the SDK of this checkout in
 * `vendor/`, and a lock file with which `npm ci` works. It is made once for each state of template and SDK; whoever
 * asks while it is made waits for the same one.
 */
export function createSeed(options: SeedOptions): () => Promise<string> {
  let making: Promise<string> | undefined;
  return () => {
    making ??= makeSeed(options).finally(() => {
      making = undefined;
    });
    return making;
  };
}

async function makeSeed(options: SeedOptions): Promise<string> {
  const { templateFolder, sourceFolder, cacheFolder, toolEnvironment: environment } = options;
  // Without the sources, this server was installed from the registry, and the SDK comes from there, too.
  const isCheckout = await exists(join(sourceFolder, "packages/sdk/src"));
  const packed = isCheckout
    ? await packPackages({ sourceFolder, cacheFolder: join(cacheFolder, "packages"), environment })
    : [];
  const target = join(cacheFolder, "seed", await hashSeed(templateFolder, packed));
  if (await exists(target)) return target;
  const stage = join(cacheFolder, "seed", `incoming-${randomUUID()}`);
  await cp(templateFolder, stage, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => path === templateFolder || !NOT_SEEDED.has(basename(path)),
  });
  await vendor(stage, packed);
  try {
    await lock(stage, environment);
  } catch (error) {
    // As without a network. The workspace works all the same, by `npm install`; the next one tries again.
    options.log({
      level: "warning",
      message: `A workspace starts without package-lock.json: ${errorMessage(error)}`,
    });
    return await place(stage, `${target}-unlocked`);
  }
  return await place(stage, target);
}

const Manifest = z.object({ dependencies: z.record(z.string(), z.string()) });

async function vendor(folder: string, packed: readonly PackedPackage[]): Promise<void> {
  const path = join(folder, "package.json");
  if (packed.length === 0 || !(await exists(path))) return;
  await mkdir(join(folder, "vendor"), { recursive: true });
  const text = await readFile(path, "utf8");
  const { dependencies } = Manifest.parse(JSON.parse(text));
  for (const { name, file } of packed) {
    await copyFile(file, join(folder, "vendor", basename(file)));
    dependencies[name] = `file:vendor/${basename(file)}`;
  }
  // The schema would put its own keys first; people read this file.
  const written: unknown = JSON.parse(text, (key, value: unknown) =>
    key === "dependencies" ? dependencies : value,
  );
  await writeFile(path, `${JSON.stringify(written, undefined, 2)}\n`);
}

/** The lock names no registry: it holds on every mirror. */
async function lock(folder: string, environment: Readonly<Record<string, string>>): Promise<void> {
  if (!(await exists(join(folder, "package.json")))) return;
  const quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"];
  await runProgram("npm", ["install", "--package-lock-only", "--omit-lockfile-registry-resolved", ...quiet], {
    folder,
    environment,
  });
}

async function place(stage: string, target: string): Promise<string> {
  await rm(target, { recursive: true, force: true });
  await rename(stage, target);
  return target;
}

async function hashSeed(templateFolder: string, packed: readonly PackedPackage[]): Promise<string> {
  const hash = createHash("sha256").update("1");
  for (const { file } of packed) hash.update(file);
  const entries = await readdir(templateFolder, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => ({ path: join(entry.parentPath, entry.name), isLink: entry.isSymbolicLink() }))
    .filter(({ path }) => !path.split(/[\\/]/).some((name) => NOT_SEEDED.has(name)))
    .toSorted((a, b) => (a.path < b.path ? -1 : 1));
  for (const { path, isLink } of files) {
    hash.update(`\0${path}\0`).update(isLink ? await readlink(path) : await readFile(path));
  }
  return hash.digest("hex").slice(0, 32);
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

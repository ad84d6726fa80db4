import { createHash, randomUUID } from "node:crypto";
import { cp, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { z } from "zod";
import { runProgram } from "./run-program.ts";

/** A package as `npm install` takes it. */
export interface PackedPackage {
  name: string;
  version: string;
  /** The archive's path. */
  file: string;
}

const Manifest = z.looseObject({
  name: z.string(),
  version: z.string(),
  exports: z.record(z.string(), z.string()),
});
type Manifest = z.infer<typeof Manifest>;

/** In the order of their dependencies: a package is compiled against the results of those before it. */
const PACKAGES = ["protocol", "sdk"];

/**
 * Packs `@osmosis/protocol` and `@osmosis/sdk` of a checkout as JavaScript with declarations. The result is kept below
 * `cacheFolder` by a hash of the sources, so it is made once for each state of them.
 */
export async function packPackages(options: {
  sourceFolder: string;
  cacheFolder: string;
  /** What `npm` runs with. */
  environment: Readonly<Record<string, string>>;
}): Promise<PackedPackage[]> {
  const { sourceFolder, cacheFolder, environment } = options;
  const target = join(cacheFolder, await hashSources(sourceFolder));
  const done = await readPacked(target);
  if (done !== undefined) return done;
  const stage = join(cacheFolder, `incoming-${randomUUID()}`);
  try {
    for (const name of PACKAGES) await compile({ sourceFolder, stage, name });
    const result = join(stage, "packed");
    await mkdir(result, { recursive: true });
    for (const name of PACKAGES) {
      const pack = ["pack", "--ignore-scripts", "--silent", "--pack-destination", result];
      await runProgram("npm", pack, { folder: join(stage, name), environment });
    }
    await mkdir(cacheFolder, { recursive: true });
    // Somebody else may have been faster; their result is the same.
    await rename(result, target).catch(async (error: unknown) => {
      if ((await readPacked(target)) === undefined) throw error;
    });
  } finally {
    await rm(stage, { recursive: true, force: true });
  }
  const packed = await readPacked(target);
  if (packed === undefined) throw new Error(`Packing the SDK left nothing in ${target}.`);
  return packed;
}

async function readPacked(folder: string): Promise<PackedPackage[] | undefined> {
  const files = await readdir(folder).catch(() => []);
  const packed = files.flatMap((file) => {
    const match = /^osmosis-([a-z]+)-(\d.*)\.tgz$/.exec(file);
    return match === null
      ? []
      : [{ name: `@osmosis/${match[1]}`, version: match[2] ?? "", file: join(folder, file) }];
  });
  return packed.length === PACKAGES.length ? packed : undefined;
}

async function compile({ sourceFolder, stage, name }: { sourceFolder: string; stage: string; name: string }) {
  const source = join(sourceFolder, "packages", name);
  const output = join(stage, name);
  await mkdir(output, { recursive: true });
  const configuration = {
    extends: join(sourceFolder, "tsconfig.json"),
    compilerOptions: {
      noEmit: false,
      // The checkout's own checks look at types; a half-finished edit elsewhere must not stop a workspace.
      noCheck: true,
      declaration: true,
      typeRoots: [join(sourceFolder, "node_modules/@types")],
      rootDir: join(source, "src"),
      outDir: join(output, "dist"),
      paths: Object.fromEntries(
        PACKAGES.map((other) => [`@osmosis/${other}`, [join(stage, other, "dist/index.d.ts")]]),
      ),
    },
    include: [join(source, "src")],
    exclude: [join(source, "src/**/*.test.ts"), join(source, "src/**/*.test.tsx")],
  };
  const file = join(stage, `tsconfig.${name}.json`);
  await writeFile(file, JSON.stringify(configuration));
  const compiler = createRequire(join(sourceFolder, "package.json")).resolve("typescript/package.json");
  const compile = [join(dirname(compiler), "bin/tsc"), "-p", file];
  await runProgram(process.execPath, compile, { folder: source, environment: {} });
  const manifest = Manifest.parse(JSON.parse(await readFile(join(source, "package.json"), "utf8")));
  await writeFile(join(output, "package.json"), JSON.stringify(publishedManifest(manifest), undefined, 2));
  await cp(join(sourceFolder, "LICENSE"), join(output, "LICENSE")).catch(() => {});
  await cp(join(source, "README.md"), join(output, "README.md")).catch(() => {});
}

/** The manifest of the archive: compiled files in place of sources, and nothing that only the checkout needs. */
function publishedManifest(manifest: Manifest): Record<string, unknown> {
  const { private: _private, devDependencies: _development, scripts: _scripts, ...rest } = manifest;
  return {
    ...rest,
    files: ["dist"],
    exports: Object.fromEntries(
      Object.entries(manifest.exports).map(([path, source]) => {
        const base = source.replace(/^\.\/src\//, "./dist/").replace(/\.tsx?$/, "");
        return [path, { types: `${base}.d.ts`, default: `${base}.js` }];
      }),
    ),
  };
}

async function hashSources(sourceFolder: string): Promise<string> {
  const hash = createHash("sha256").update("1");
  for (const name of PACKAGES) {
    const folder = join(sourceFolder, "packages", name);
    const sources = await readdir(join(folder, "src"), { recursive: true });
    const files = sources.filter((file) => /\.tsx?$/.test(file) && !/\.test\.tsx?$/.test(file)).toSorted();
    for (const file of ["package.json", ...files.map((one) => join("src", one))]) {
      hash.update(`\0${name}/${file}\0`).update(await readFile(join(folder, file)));
    }
  }
  return hash.digest("hex").slice(0, 32);
}

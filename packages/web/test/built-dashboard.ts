import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat } from "node:fs/promises";
import { join, relative } from "node:path";
import { build } from "vite";

const root = join(import.meta.dirname, "..");
const cache = join(root, "../../node_modules/.cache/osmosis-dashboard");

/**
 * The dashboard built from the sources as they are now. It is built once for the same sources, whichever tests ask.
 */
export async function builtDashboard(): Promise<string> {
  const hash = await hashOfSources();
  const folder = join(cache, hash);
  if (existsSync(folder)) return folder;
  await mkdir(cache, { recursive: true });
  await deleteOldBuilds();
  const made = await mkdtemp(join(cache, "building-"));
  await build({
    root,
    configFile: join(root, "vite.config.ts"),
    logLevel: "error",
    build: { outDir: made, emptyOutDir: true },
  });
  await rename(made, folder).catch(async () => {
    // Another test was faster.
    await rm(made, { recursive: true, force: true });
  });
  return folder;
}

/** Tests that still run may use a build of the last hour. */
async function deleteOldBuilds(): Promise<void> {
  for (const name of await readdir(cache)) {
    const { mtimeMs } = await stat(join(cache, name));
    if (Date.now() - mtimeMs > 3_600_000) await rm(join(cache, name), { recursive: true, force: true });
  }
}

async function hashOfSources(): Promise<string> {
  const hash = createHash("sha256");
  const folders = ["src", "../protocol/src"];
  const files = ["index.html", "vite.config.ts", "package.json", "../../package-lock.json"];
  for (const folder of folders) {
    for (const entry of await readdir(join(root, folder), { recursive: true, withFileTypes: true })) {
      if (entry.isFile()) files.push(relative(root, join(entry.parentPath, entry.name)));
    }
  }
  for (const file of files.toSorted()) {
    hash.update(file).update(await readFile(join(root, file)));
  }
  return hash.digest("hex").slice(0, 16);
}

/**
 * Packs `@osmosis/protocol` and `@osmosis/sdk` of this checkout as `npm pack` would publish them, and prints where:
 *
 *     node scripts/pack.ts [folder]
 *
 * A folder, such as the `vendor/` of a workspace, gets them in place of those that it has.
 */
import { copyFile, mkdir, readdir, rm } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { packPackages } from "@osmosis/server/pack";

const checkout = resolve(import.meta.dirname, "..");
const packed = await packPackages({
  sourceFolder: checkout,
  cacheFolder: join(checkout, ".osmosis/cache/packages"),
  environment: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "" },
});
const [, , folder] = process.argv;
const placed = folder === undefined ? packed : await place(resolve(folder));
console.log(JSON.stringify(placed, undefined, 2));

async function place(target: string): Promise<typeof packed> {
  await mkdir(target, { recursive: true });
  const former = (await readdir(target)).filter((name) => /^osmosis-(?:protocol|sdk)-\d.*\.tgz$/.test(name));
  for (const name of former) await rm(join(target, name));
  return await Promise.all(
    packed.map(async (one) => {
      const file = join(target, basename(one.file));
      await copyFile(one.file, file);
      return { ...one, file };
    }),
  );
}

/**
 * Packs `@osmosis/protocol` and `@osmosis/sdk` of this checkout as `npm pack` would publish them, and prints where:
 *
 *     node scripts/pack.ts [folder]
 */
import { resolve } from "node:path";
import { packPackages } from "@osmosis/server/pack";

const packed = await packPackages({
  sourceFolder: resolve(import.meta.dirname, ".."),
  cacheFolder: resolve(process.argv[2] ?? ".osmosis/packages"),
  environment: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "" },
});
console.log(JSON.stringify(packed, undefined, 2));

/** Writes the multiply data set of the workspace template: `node packages/engine/tiny-model/write-data-set.ts`. */
import { mkdir, writeFile } from "node:fs/promises";
import { multiplyRows } from "./multiply-rows.ts";

export const DATA_SET_SEED = 20_261_130;

const FOLDER = new URL("../../../templates/workspace/data/", import.meta.url);

if (import.meta.main) {
  const rows = multiplyRows(DATA_SET_SEED);
  await mkdir(FOLDER, { recursive: true });
  const path = new URL("multiply.jsonl", FOLDER);
  await writeFile(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  console.log(`${rows.length} rows written to ${path.pathname}`);
}

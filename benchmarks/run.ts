/**
 * Runs every benchmark of this folder, one after the other: `npm run benchmark`. One that lacks what it compares with
 * says so and ends with 2, which is no failure.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { join } from "node:path";

const folder = import.meta.dirname;
const scripts = (await readdir(folder)).filter((name) => name.endsWith(".ts") && name !== "run.ts").sort();
for (const script of scripts) {
  console.log(`\n${script}`);
  const [code] = await once(spawn(process.execPath, [join(folder, script)], { stdio: "inherit" }), "exit");
  if (code !== 0 && code !== 2) process.exitCode = 1;
}

import { stat, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { Context } from "../context.ts";
import { makeFolder } from "../output/target-folder.ts";

/** Writes a run's metrics as JSON; a folder gets a file that is named for the run. Answers the path. */
export async function saveMetrics(
  context: Context,
  parts: { output: string; run: { id: string; name: string }; metrics: unknown },
): Promise<string> {
  const { output, run, metrics } = parts;
  const given = resolve(context.io.cwd, output);
  const isFolder = output.endsWith("/") || (await stat(given).catch(() => undefined))?.isDirectory() === true;
  const safeName = run.name.replaceAll(/[^A-Za-z0-9_-]/g, "_");
  const path = isFolder ? join(given, `${safeName}_${run.id.slice(0, 8)}.json`) : given;
  await makeFolder(dirname(path));
  await writeFile(path, `${JSON.stringify(metrics, null, 2)}\n`);
  return path;
}

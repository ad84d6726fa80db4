import { existsSync } from "node:fs";
import { readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Context } from "../context.ts";
import { startChild } from "./child.ts";
import { sourceCheckout } from "./data-folder.ts";

/** What the dashboard is made of, in a source checkout. */
const SOURCES = [
  "packages/web/index.html",
  "packages/web/vite.config.ts",
  "packages/web/package.json",
  "packages/web/src",
  "packages/protocol/src",
];

/**
 * Builds the dashboard of a source checkout when it was never built, or when a file that it is made of is newer: pages of
 * another version would leave out what the platform tells. Without it everything but the pages works.
 */
export async function buildDashboard(context: Context): Promise<void> {
  const root = sourceCheckout();
  if (root === undefined) return;
  const web = join(root, "packages/web");
  if (!existsSync(join(web, "index.html")) || !(await isOutdated(root))) return;
  const { io } = context;
  const progress = context.progress();
  progress.update({ label: "Building the dashboard …" });
  const startedAt = io.now();
  let said = "";
  // Aside, so that a platform that runs already loses no page meanwhile. Git does not look in there.
  const built = join(root, `node_modules/.osmosis-dashboard-${io.processId}`);
  const child = startChild({
    command: io.nodePath,
    args: [
      join(root, "node_modules/vite/bin/vite.js"),
      "build",
      "--logLevel",
      "warn",
      "--outDir",
      built,
      "--emptyOutDir",
    ],
    env: io.env,
    cwd: web,
    onStdout: () => {},
    onStderr: (text) => {
      said = (said + text).slice(-2000);
    },
  });
  const stop = (): void => void child.stop(1000);
  io.interrupted.addEventListener("abort", stop, { once: true });
  const { code } = await child.ended;
  io.interrupted.removeEventListener("abort", stop);
  if (code === 0 && !io.interrupted.aborted) await replaceFolder(built, join(web, "dist"));
  await rm(built, { recursive: true, force: true });
  io.interrupted.throwIfAborted();
  progress.stop(`Built the dashboard in ${((io.now() - startedAt) / 1000).toFixed(1)} s.`);
  if (code !== 0) {
    context.warn(
      "DASHBOARD_MISSING",
      `The dashboard could not be built; the platform runs without it. ${said}`,
    );
  }
}

/** Whether the dashboard of the checkout is missing, or older than what it is made of. */
export async function isOutdated(root: string): Promise<boolean> {
  const built = await changedAt(join(root, "packages/web/dist/index.html"));
  if (built === undefined) return true;
  for (const source of SOURCES) {
    const path = join(root, source);
    const inside = await readdir(path, { recursive: true }).catch(() => []);
    for (const file of [path, ...inside.map((name) => join(path, name))]) {
      if (!/\.test\.tsx?$/.test(file) && ((await changedAt(file)) ?? 0) > built) return true;
    }
  }
  return false;
}

async function changedAt(path: string): Promise<number | undefined> {
  return (await stat(path).catch(() => undefined))?.mtimeMs;
}

/** Puts a folder in the place of another. When two do so at once, either of the two stays. */
export async function replaceFolder(folder: string, place: string): Promise<void> {
  const before = `${folder}.before`;
  await rename(place, before).catch(() => {});
  // Somebody else was faster: theirs is as good.
  await rename(folder, place).catch(() => {});
  await rm(before, { recursive: true, force: true });
}

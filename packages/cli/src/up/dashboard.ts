import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Context } from "../context.ts";
import { startChild } from "./child.ts";
import { sourceCheckout } from "./data-folder.ts";

/** Builds the dashboard of a source checkout when it was never built. Without it everything but the pages works. */
export async function buildDashboardOnce(context: Context): Promise<void> {
  const root = sourceCheckout();
  if (root === undefined) return;
  const web = join(root, "packages/web");
  if (existsSync(join(web, "dist/index.html")) || !existsSync(join(web, "index.html"))) return;
  const { io } = context;
  const progress = context.progress();
  progress.update({ label: "Building the dashboard, once …" });
  const startedAt = io.now();
  let said = "";
  const child = startChild({
    command: io.nodePath,
    args: [join(root, "node_modules/vite/bin/vite.js"), "build", "--logLevel", "warn"],
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
  io.interrupted.throwIfAborted();
  progress.stop(`Built the dashboard in ${((io.now() - startedAt) / 1000).toFixed(1)} s.`);
  if (code !== 0) {
    context.warn(
      "DASHBOARD_MISSING",
      `The dashboard could not be built; the platform runs without it. ${said}`,
    );
  }
}

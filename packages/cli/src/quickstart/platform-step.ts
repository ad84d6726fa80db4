import { OsmosisError } from "@osmosis/protocol";
import type { QuickstartOptions } from "../commands/quickstart.ts";
import type { Context } from "../context.ts";
import { DEFAULT_PORT } from "../platform/url.ts";
import { buildDashboard } from "../up/dashboard.ts";
import { readRunning } from "../up/data-folder.ts";
import { startPlatform, type LocalPlatform } from "../up/platform.ts";

/** The platform of a quickstart: one that was running already, or one that it holds itself. */
export type QuickstartPlatform =
  | { readonly kind: "found"; readonly url: string }
  | ({ readonly kind: "started" } & LocalPlatform);

const HEALTH_TIMEOUT_MS = 3000;

/**
 * Finds the platform that runs on the folder, or starts it. When the usual port is taken by another program and no
 * port was asked for, any free one will do.
 */
export async function findOrStartPlatform(
  context: Context,
  folder: string,
  options: QuickstartOptions,
): Promise<QuickstartPlatform> {
  const running = await readRunning(folder);
  if (running !== undefined && (await answers(context, running.url)))
    return { kind: "found", url: running.url };
  await buildDashboard(context);
  const start = (port: number): Promise<LocalPlatform> =>
    startPlatform(context, { folder, host: "127.0.0.1", port, workers: 1 });
  try {
    return { kind: "started", ...(await start(options.port ?? DEFAULT_PORT)) };
  } catch (error) {
    const isPortTaken =
      error instanceof OsmosisError && error.code === "CONFLICT" && error.message.startsWith("Port ");
    if (!isPortTaken || options.port !== undefined) throw error;
    context.warn("PORT_TAKEN", `Port ${DEFAULT_PORT} is taken by another program; taking a free one.`);
    return { kind: "started", ...(await start(0)) };
  }
}

async function answers(context: Context, url: string): Promise<boolean> {
  try {
    const response = await context.io.fetch(`${url}/api/health`, {
      signal: AbortSignal.any([context.io.interrupted, AbortSignal.timeout(HEALTH_TIMEOUT_MS)]),
    });
    return response.ok;
  } catch {
    return false;
  }
}

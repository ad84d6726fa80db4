import { OsmosisError } from "@osmosis/protocol";
import type { UpOptions } from "../commands/up.ts";
import type { Context } from "../context.ts";
import { stringifyStrict } from "../output/strict-json.ts";
import type { SilentResult } from "../output/result.ts";
import { buildDashboard } from "./dashboard.ts";
import { dataFolder, pathCommand } from "./data-folder.ts";
import { startPlatform } from "./platform.ts";

/**
 * Runs the platform in the foreground until Ctrl-C. With `--json` it says one line when it listens; everything else is
 * on stderr.
 */
export async function up(context: Context, options: UpOptions): Promise<SilentResult> {
  const { io, style } = context;
  const folder = dataFolder(context, options.data);
  await buildDashboard(context);
  context.note(`Starting the platform on ${folder} …`);
  const platform = await startPlatform(context, {
    folder,
    host: options.host,
    port: options.port,
    workers: options.worker ? options.workers : 0,
    onLine: (line) => {
      if (context.mode !== "json") io.stderr.write(line);
    },
  }).catch((error: unknown) => {
    throw withPort(error, options.port);
  });
  const command = pathCommand(context.env);
  try {
    if (context.mode === "json") {
      io.stdout.write(
        `${stringifyStrict({
          schema_version: 1,
          status: "success",
          operation: "up",
          resource: { url: platform.url, sign_in_url: platform.signInUrl, data: folder, pid: io.processId },
          message: `The platform listens on ${platform.url}.`,
        })}\n`,
      );
    } else {
      io.stdout.write(
        `${style.green("✓")} The platform listens on ${style.bold(platform.url)}\n` +
          `  Sign in (once, within 30 minutes): ${style.cyan(platform.signInUrl)}\n` +
          `  Data: ${folder}\n` +
          (command === undefined ? "" : `  The command, in another shell: ${command}\n`) +
          `  Sign the command line in: osmosis auth login --local${options.data === undefined ? "" : ` --data ${folder}`}\n` +
          `  Ctrl-C ends it.\n`,
      );
    }
    await Promise.race([untilInterrupted(io.interrupted), platform.failed]);
  } finally {
    context.note("Stopping …");
    await platform.stop();
  }
  io.interrupted.throwIfAborted();
  return { kind: "silent" };
}

async function untilInterrupted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** A taken port is named with its remedy, whatever the server said. */
function withPort(error: unknown, port: number): unknown {
  if (!(error instanceof OsmosisError) || error.code !== "CONFLICT" || !/port/i.test(error.message))
    return error;
  return new OsmosisError("CONFLICT", error.message, {
    hint: `Stop the program that listens on port ${port}, or choose another port: \`osmosis up --port ${port + 1}\` (0 takes any free one).`,
    cause: error,
    details: { port },
  });
}

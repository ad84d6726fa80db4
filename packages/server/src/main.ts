/**
 * The server process: the only file of this package that touches the process and its environment.
 *
 *     node main.ts --data <folder> [--port 8700] [--host 127.0.0.1] [--json] [--supervised]
 *
 * It goes starting → listening → stopping. While it starts, a signal ends it at once. After that SIGTERM, SIGINT and,
 * with `--supervised`, the end of standard input or of the parent's message channel begin stopping; a second signal
 * ends the process at once.
 */
import { parseArgs } from "node:util";
import { OsmosisError, errorMessage } from "@osmosis/protocol";
import { createApp } from "./app.ts";
import { readConfig } from "./config.ts";
import { listen, type Handler } from "./http/listen.ts";
import { openPlatform, type Log } from "./platform.ts";

const { values: flags } = parseArgs({
  options: {
    data: { type: "string", default: ".osmosis" },
    host: { type: "string" },
    port: { type: "string" },
    /** One JSON line on standard output when the server listens, or why it does not. */
    json: { type: "boolean", default: false },
    supervised: { type: "boolean", default: false },
  },
});

const log: Log = (entry) => {
  process.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), ...entry })}\n`);
};

// Whoever reads what is printed may be gone; that must not stop the server from closing what it holds.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});

try {
  await run();
  process.exit(0);
} catch (error) {
  report(error);
  process.exit(1);
}

async function run(): Promise<void> {
  const config = readConfig(
    { dataFolder: flags.data, host: flags.host, port: portOf(flags.port) },
    process.env,
  );
  await using stack = new AsyncDisposableStack();
  let handler: Handler = answerStarting;
  const listening = await listen(config, (request, bindings) => handler(request, bindings));
  const url = config.publicUrl ?? listening.url;
  const platform = stack.use(await openPlatform({ config, url, now: () => new Date(), log }));
  // Closed first, so that what runs ends before the database does.
  stack.use(listening);
  const app = createApp(platform);
  handler = (request, bindings) => app.fetch(request, bindings);
  const stopped = stopSignal();
  const signInUrl = await platform.accounts.createSignInLink(platform.owner.email);
  announce({ event: "listening", url, port: listening.port, pid: process.pid, sign_in_url: signInUrl });
  const cause = await Promise.race([stopped, platform.broken]);
  if (cause !== undefined) {
    // Closing would wait for a database that answers nothing.
    report(cause);
    process.exit(1);
  }
  log({ level: "info", message: "The server stops." });
}

function answerStarting(): Response {
  return Response.json({ error: "The server is starting.", code: "PLATFORM_ERROR" }, { status: 503 });
}

/** Resolves when the process is to stop. */
function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
      resolve();
    };
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, stop);
    if (!flags.supervised) return;
    process.once("disconnect", stop);
    process.stdin.once("end", stop).once("error", stop).resume();
  });
}

function portOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const port = Number(text);
  if (Number.isInteger(port) && port >= 0 && port <= 65_535) return port;
  throw new OsmosisError("VALIDATION", `--port ${text} is not a port number.`, {
    hint: "Ports go from 0 to 65535.",
  });
}

function announce(event: {
  event: "listening";
  url: string;
  sign_in_url: string;
  [detail: string]: unknown;
}): void {
  const text = flags.json
    ? JSON.stringify(event)
    : `Osmosis listens on ${event.url}\nSign in: ${event.sign_in_url}`;
  process.stdout.write(`${text}\n`);
}

function report(error: unknown): void {
  const code = error instanceof OsmosisError ? error.code : "INTERNAL";
  const hint = error instanceof OsmosisError ? error.hint : undefined;
  const message = errorMessage(error);
  if (flags.json) process.stdout.write(`${JSON.stringify({ event: "failed", code, message, hint })}\n`);
  process.stderr.write(`${message}\n${hint === undefined ? "" : `${hint}\n`}`);
  if (code === "INTERNAL" && error instanceof Error) process.stderr.write(`${error.stack ?? ""}\n`);
}

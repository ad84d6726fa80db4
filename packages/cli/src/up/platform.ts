import { createWriteStream, type WriteStream } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { ERROR_CODES, OsmosisError, type ErrorCode } from "@osmosis/protocol";
import { z } from "zod";
import type { Context } from "../context.ts";
import { startChild } from "./child.ts";
import { removeRunning, writeRunning } from "./data-folder.ts";
import { prepareDataFolder } from "./folder.ts";
import { lineSplitter } from "./lines.ts";
import { endingText, supervise, type Supervised } from "./supervise.ts";

/**
 * The platform on this machine: a server process and its worker processes, all held.
 *
 * It goes starting → running → stopped. In `starting` the first answer of the server decides: it listens, or it says
 * why it does not, and then nothing is tried again. In `running` a process that dies is started again, on the same
 * port. `stop` ends the workers first, since they talk to the server to their last moment.
 */
export type LocalPlatform = {
  readonly url: string;
  readonly signInUrl: string;
  readonly folder: string;
  readonly logFolder: string;
  /** Rejects when a process dies again and again. */
  readonly failed: Promise<never>;
  readonly stop: () => Promise<void>;
};

const ServerEvent = z.discriminatedUnion("event", [
  z.object({ event: z.literal("listening"), url: z.string(), port: z.int(), sign_in_url: z.string() }),
  z.object({
    event: z.literal("failed"),
    code: z.string(),
    message: z.string(),
    hint: z.string().optional(),
  }),
]);
type ServerEvent = z.infer<typeof ServerEvent>;

const WORKER_GRACE_MS = 6000;
const SERVER_GRACE_MS = 4000;

/**
 * Starts the platform and answers when it listens.
 *
 * @throws OsmosisError `CONFLICT` for a taken port or folder, `STORAGE` for a folder that cannot be written, and what
 * else the server says
 */
export async function startPlatform(
  context: Context,
  options: {
    readonly folder: string;
    readonly host: string;
    readonly port: number;
    /** How many workers. Each has a folder and a log of its own. */
    readonly workers: number;
    /** Lines of all processes, as they come; they are in the log files anyway. */
    readonly onLine?: (line: string) => void;
  },
): Promise<LocalPlatform> {
  const { folder, host, onLine } = options;
  const { io } = context;
  await prepareDataFolder(folder);
  const logFolder = join(folder, "logs");
  const logs: WriteStream[] = [];
  const openLog = (name: string): WriteStream => {
    const log = createWriteStream(join(logFolder, `${name}.log`), { flags: "a" });
    log.on("error", () => {});
    logs.push(log);
    return log;
  };
  const serverLog = openLog("server");
  // What says who the caller is, is nobody else's business: a rollout may read the environment of its worker.
  const { OSMOSIS_TOKEN: _token, ...inherited } = io.env;
  const env = { ...inherited, PATH: `${dirname(io.nodePath)}${delimiter}${io.env["PATH"] ?? ""}` };
  const serverMain = fileURLToPath(import.meta.resolve("@osmosis/server/main"));
  const workerMain = join(dirname(serverMain), "worker/main.ts");
  const say = (log: WriteStream, text: string): void => {
    log.write(text);
    onLine?.(text);
  };

  const first = Promise.withResolvers<ServerEvent>();
  let port = options.port;
  const startServer = () => {
    const args = [
      serverMain,
      "--data",
      folder,
      "--host",
      host,
      "--port",
      String(port),
      "--json",
      "--supervised",
    ];
    const child = startChild({
      command: io.nodePath,
      args,
      env,
      cwd: folder,
      onStdout: lineSplitter((line) => {
        const event = parseEvent(line);
        if (event !== undefined) first.resolve(event);
      }),
      onStderr: (text) => say(serverLog, text),
    });
    void child.ended.then((ending) =>
      first.resolve({
        event: "failed",
        code: "INTERNAL",
        message: `The server ended while it started (${endingText(ending)}).`,
        hint: `Its last words are in ${join(logFolder, "server.log")}.`,
      }),
    );
    return child;
  };
  const restarted = (name: string) => (ending: Parameters<typeof endingText>[0], pauseMs: number) => {
    context.warn(
      "PROCESS_RESTARTED",
      `The ${name} ended (${endingText(ending)}); it starts again in ${pauseMs} ms.`,
    );
  };
  const workers = new Map<string, Supervised>();
  const stop = async (): Promise<void> => {
    await Promise.all([...workers.values()].map((held) => held.stop(WORKER_GRACE_MS)));
    await server.stop(SERVER_GRACE_MS);
    await removeRunning(folder);
    for (const log of logs) log.end();
  };

  let hasStarted = false;
  const server = supervise({
    start: startServer,
    now: io.now,
    // Before the first answer nothing is tried again: `stop` below ends the supervision during the pause.
    onRestart: (ending, pauseMs) => {
      if (hasStarted) restarted("server")(ending, pauseMs);
    },
  });
  const interrupted = new Promise<never>((_, reject) => {
    io.interrupted.addEventListener("abort", () => reject(io.interrupted.reason as Error), { once: true });
    if (io.interrupted.aborted) reject(io.interrupted.reason as Error);
  });
  interrupted.catch(() => {});
  let event: ServerEvent;
  try {
    event = await Promise.race([first.promise, interrupted]);
    if (event.event === "failed") throw failureOf(event);
  } catch (error) {
    await stop();
    throw error;
  }
  hasStarted = true;
  port = event.port;
  const { url, sign_in_url: signInUrl } = event;
  await writeRunning(folder, { url, pid: io.processId, started_at: new Date(io.now()).toISOString() });

  for (let number = 1; number <= options.workers; number += 1) {
    const name = number === 1 ? "worker" : `worker-${number}`;
    const log = openLog(name);
    const args = [
      workerMain,
      "--platform",
      `http://${loopbackOf(host)}:${port}`,
      "--token-file",
      join(folder, "worker-secret"),
      "--data",
      join(folder, name),
      "--supervised",
    ];
    const held = supervise({
      start: () =>
        startChild({
          command: io.nodePath,
          args,
          env: workerEnvironment(env),
          cwd: folder,
          onStdout: (text) => say(log, text),
          onStderr: (text) => say(log, text),
        }),
      now: io.now,
      onRestart: restarted(name),
    });
    workers.set(name, held);
  }
  const failed = failureAmong(new Map([["server", server], ...workers]), logFolder);
  return { url, signInUrl, folder, logFolder, failed, stop };
}

/** The worker asks the server for everything, and needs neither its database nor its key. */
function workerEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> {
  const { DATABASE_URL: _database, OSMOSIS_MASTER_KEY: _key, ...rest } = env;
  return rest;
}

/** Rejects with the first process that is given up; stays open otherwise. */
async function failureAmong(supervised: ReadonlyMap<string, Supervised>, logFolder: string): Promise<never> {
  const deaths = [...supervised].map(async ([name, held]) => ({
    name,
    ending: await held.givenUp,
  }));
  const { name, ending } = await Promise.race(deaths);
  throw new OsmosisError("INTERNAL", `The ${name} dies again and again (${endingText(ending)}).`, {
    hint: `Its last words are in ${join(logFolder, `${name}.log`)}.`,
  });
}

function parseEvent(line: string): ServerEvent | undefined {
  try {
    return ServerEvent.parse(JSON.parse(line));
  } catch {
    return undefined;
  }
}

function failureOf(event: Extract<ServerEvent, { event: "failed" }>): OsmosisError {
  const code: ErrorCode = ERROR_CODES.find((known) => known === event.code) ?? "INTERNAL";
  return new OsmosisError(code, event.message, event.hint === undefined ? {} : { hint: event.hint });
}

function loopbackOf(host: string): string {
  if (host === "0.0.0.0" || host === "::" || host === "") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

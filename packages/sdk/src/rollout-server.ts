/// <reference lib="esnext.disposable" preserve="true" />
import { createServer, type Server } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { getRequestListener } from "@hono/node-server";
import { OsmosisError } from "@osmosis/protocol";
import { readServerConfig, type RolloutServerConfig, systemRandom, writeLog } from "./io.ts";
import { createRolloutApp } from "./rollout-app.ts";
import { createRolloutFiles } from "./rollout-files.ts";
import { RolloutRegistry } from "./rollout-registry.ts";
import { type AnyBackend, conductRollout } from "./rollout-runner.ts";

export type RolloutServerOptions = {
  readonly backend: AnyBackend;
  /** What is not given comes from the `_OSMOSIS_ROLLOUT_*` variables. */
  readonly config?: Partial<RolloutServerConfig>;
  readonly times?: Partial<RolloutServerTimes>;
  readonly log?: (text: string) => void;
  readonly fetch?: typeof fetch;
  readonly random?: () => number;
};

export type RolloutServerTimes = {
  /** How long a poll is held open. */
  readonly resultWaitMs: number;
  /** How long a rollout lives without a poll; greater than the wait. */
  readonly leaseMs: number;
  /** How long a result is kept. */
  readonly retentionMs: number;
  /** How long a result is kept once it was polled. */
  readonly polledRetentionMs: number;
};

export type ListeningServer = AsyncDisposable & {
  readonly url: string;
  readonly port: number;
  /**
   * Takes no more rollouts, lets those under way finish for `drainMs`, cancels what is left, and stops listening. Until
   * then results can be polled.
   */
  close(options?: { drainMs?: number }): Promise<void>;
};

export type RolloutServer = {
  /** Answers a request without a socket. */
  fetch(request: Request): Response | Promise<Response>;
  /** @throws OsmosisError `CONFLICT` when the port is taken, `VALIDATION` when the address cannot be listened on. */
  listen(): Promise<ListeningServer>;
};

const DEFAULT_TIMES: RolloutServerTimes = {
  resultWaitMs: 30_000,
  leaseMs: 120_000,
  retentionMs: 900_000,
  polledRetentionMs: 60_000,
};
const DRAIN_MS = 10_000;
/** What cancelled rollouts get to stop in, and open polls to read how they ended. */
const CANCEL_MS = 5_000;
const LAST_ANSWERS_MS = 250;

/**
 * A rollout server for `backend`. Entrypoints call `serveRollout`, which also handles signals.
 *
 * @throws OsmosisError `VALIDATION` when the settings make no sense.
 */
export function createRolloutServer(options: RolloutServerOptions): RolloutServer {
  const { backend, log = writeLog } = options;
  const config = { ...readServerConfig(), ...options.config };
  const times = { ...DEFAULT_TIMES, ...options.times };
  if (times.leaseMs <= times.resultWaitMs) {
    throw new OsmosisError("VALIDATION", `A lease of ${times.leaseMs} ms ends within one poll.`, {
      hint: `Make leaseMs greater than resultWaitMs, which is ${times.resultWaitMs}.`,
    });
  }
  const registry = new RolloutRegistry(times);
  const runs = new Set<Promise<void>>();
  const stopped = new AbortController();
  let draining = false;
  const files = createRolloutFiles(config.artifactRoot, log);
  const callbackIo = {
    fetch: options.fetch ?? fetch,
    random: options.random ?? systemRandom,
    log,
    signal: stopped.signal,
  };
  const app = createRolloutApp({
    ...config,
    ...times,
    backend,
    registry,
    log,
    isDraining: () => draining,
    start(request, rolloutId, handle) {
      const run = conductRollout(request, rolloutId, handle, { backend, files, callbackIo });
      runs.add(run);
      void run.finally(() => runs.delete(run));
    },
  });

  async function close(server: Server, { drainMs = DRAIN_MS }: { drainMs?: number } = {}): Promise<void> {
    draining = true;
    if (drainMs > 0) await settleWithin(runs, drainMs);
    registry.cancel({ type: "all" }, "shutdown");
    await settleWithin(runs, CANCEL_MS);
    stopped.abort();
    const closed = new Promise<void>((resolve) => void server.close(() => resolve()));
    await Promise.race([closed, sleep(LAST_ANSWERS_MS)]);
    server.closeAllConnections();
    await closed;
  }

  return {
    fetch: (request) => app.fetch(request),
    async listen() {
      const answer = getRequestListener(app.fetch, { overrideGlobalObjects: false });
      const server = createServer((request, response) => void answer(request, response));
      // Longer than clients keep idle connections: whoever closes first must not be the server, in the middle of a request.
      server.keepAliveTimeout = 75_000;
      const port = await bind(server, config);
      let closing: Promise<void> | undefined;
      return {
        url: `http://${config.host.includes(":") ? `[${config.host}]` : config.host}:${port}`,
        port,
        close: (closeOptions) => (closing ??= close(server, closeOptions)),
        [Symbol.asyncDispose]: () => (closing ??= close(server, { drainMs: 0 })),
      };
    },
  };
}

async function bind(
  server: Server,
  { host, port }: Pick<RolloutServerConfig, "host" | "port">,
): Promise<number> {
  const listening = Promise.withResolvers<void>();
  server.once("error", listening.reject);
  server.listen({ host, port }, listening.resolve);
  try {
    await listening.promise;
  } catch (error) {
    throw cannotListen(error, host, port);
  }
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : port;
}

function cannotListen(error: unknown, host: string, port: number): OsmosisError {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "EADDRINUSE") {
    return new OsmosisError("CONFLICT", `Port ${port} on ${host} is taken.`, {
      hint: "Stop the program that listens there, or set _OSMOSIS_ROLLOUT_PORT to another port (0 is any free one).",
      cause: error,
    });
  }
  return new OsmosisError(
    "VALIDATION",
    `The rollout server cannot listen on ${host} port ${port}: ${String(code)}.`,
    {
      hint: "Check _OSMOSIS_ROLLOUT_HOST and _OSMOSIS_ROLLOUT_PORT.",
      cause: error,
    },
  );
}

async function settleWithin(runs: ReadonlySet<Promise<void>>, withinMs: number): Promise<void> {
  const timer = new AbortController();
  const timeUp = sleep(withinMs, undefined, { signal: timer.signal }).catch(() => {});
  await Promise.race([Promise.allSettled(runs), timeUp]);
  timer.abort();
}

import { randomUUID } from "node:crypto";
import { access, mkdir } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { OsmosisError } from "@osmosis/protocol";
import { startGuarded } from "./guarded-process.ts";
import { pythonFor } from "./python-environment.ts";

/**
 * The user's rollout server as a child process. It is started, must answer `/health` in time with the instance id that
 * it was given, and is then used until the run ends. It fails when it dies in between, or when it is silent for so long
 * that something in it must block its event loop for good.
 */
export type RolloutProcess = AsyncDisposable & {
  readonly url: string;
  readonly token: string;
  readonly artifactRoot: string;
  /** Resolves when it serves no longer, with the reason; stays open when it was stopped. */
  readonly failed: Promise<OsmosisError>;
};

export type RolloutTimeouts = {
  /** From the start to the first answer. */
  readonly startMs: number;
  /** Without any answer, later. */
  readonly silenceMs: number;
};

export type RolloutProcessRequest = {
  /** The commit's files. */
  readonly folder: string;
  readonly rollout: string;
  readonly entrypoint: string;
  /** What the child sees of the outside; an installer sees it, too. */
  readonly environment: Readonly<Record<string, string>>;
  /** What it sees of the run: its variables and secrets. The platform's own are added. */
  readonly variables: Readonly<Record<string, string>>;
  readonly artifactRoot: string;
  /** The name of the worker that starts it, for errors of its machine. */
  readonly worker?: string;
  readonly onLine: (line: string, stream: "stdout" | "stderr") => void;
  readonly timeouts?: RolloutTimeouts;
  readonly fetch: typeof fetch;
  readonly signal: AbortSignal;
};

/** @throws OsmosisError `VALIDATION` when the entrypoint exits, or does not listen in time. */
export async function startRolloutProcess(request: RolloutProcessRequest): Promise<RolloutProcess> {
  const entrypoint = join(request.folder, "rollouts", request.rollout, request.entrypoint);
  await access(entrypoint).catch(() => {
    throw new OsmosisError(
      "VALIDATION",
      `rollouts/${request.rollout}/${request.entrypoint} is not in the commit.`,
      {
        hint: "Commit and push the entrypoint, or mend [experiment] in the configuration.",
      },
    );
  });
  const command = await commandFor(entrypoint, request);
  await mkdir(request.artifactRoot, { recursive: true });
  const instance = randomUUID();
  const token = randomUUID();
  const port = await freePort();
  const lastLines: string[] = [];
  const child = startGuarded(command, {
    folder: dirname(entrypoint),
    environment: {
      // Python keeps what it prints into a pipe for itself until there is much of it.
      ...(isPython(entrypoint) && { PYTHONUNBUFFERED: "1" }),
      ...request.environment,
      ...request.variables,
      _OSMOSIS_ROLLOUT_PORT: String(port),
      _OSMOSIS_ROLLOUT_SERVER_TOKEN: token,
      _OSMOSIS_ROLLOUT_INSTANCE_ID: instance,
      _OSMOSIS_ROLLOUT_ARTIFACT_ROOT: request.artifactRoot,
    },
    signal: request.signal,
    onLine: (line, stream) => {
      lastLines.push(line);
      if (lastLines.length > 20) lastLines.shift();
      request.onLine(line, isPython(entrypoint) && isInformation(line) ? "stdout" : stream);
    },
  });
  const url = `http://127.0.0.1:${port}`;
  const name = `rollouts/${request.rollout}/${request.entrypoint}`;
  const { startMs, silenceMs } = request.timeouts ?? { startMs: 60_000, silenceMs: 60_000 };
  try {
    const ready = healthOf({
      url,
      instance,
      timeoutMs: startMs,
      fetch: request.fetch,
      signal: request.signal,
    });
    const first = await Promise.race([ready, child.ended]);
    request.signal.throwIfAborted();
    if (first === "timeout") {
      throw new OsmosisError(
        "VALIDATION",
        `${name} did not listen on port ${port} within ${startMs / 1000} s: ${tail(lastLines)}`,
        {
          hint: isPython(entrypoint)
            ? "The entrypoint must serve create_rollout_server(...) on the port in _OSMOSIS_ROLLOUT_PORT."
            : "The entrypoint must call serveRollout, which listens on the port in _OSMOSIS_ROLLOUT_PORT.",
        },
      );
    }
    if (first !== "ready") {
      throw new OsmosisError(
        "VALIDATION",
        `${name} exited with code ${first.code} before it listened: ${tail(lastLines)}`,
        {
          hint: `Start it by hand: _OSMOSIS_ROLLOUT_PORT=8123 ${isPython(entrypoint) ? "python3" : "node"} ${name}`,
        },
      );
    }
  } catch (error) {
    await child.stop();
    throw error;
  }
  const closing = new AbortController();
  const failed = Promise.race([
    child.ended.then(({ code }) =>
      failure(`${name} ended in the middle of the run, with exit code ${code}: ${tail(lastLines)}`, {
        hint:
          code === 137
            ? "Something killed it: the usual cause is too little memory."
            : "Nothing in the rollout may end its process; an error belongs into the rollout that it concerns.",
      }),
    ),
    silence(`${url}/health`, { silenceMs, fetch: request.fetch, signal: closing.signal }).then(() =>
      failure(`${name} gave no answer for ${silenceMs / 1000} s: ${tail(lastLines)}`, {
        hint: "Something in it blocks the event loop: a loop without an end, or a long synchronous call.",
      }),
    ),
  ]);
  return {
    url,
    token,
    artifactRoot: request.artifactRoot,
    failed: new Promise((resolve) => {
      void failed.then((error) => {
        if (!closing.signal.aborted) resolve(error);
      });
    }),
    [Symbol.asyncDispose]: async () => {
      closing.abort();
      await child.stop();
    },
  };
}

function failure(message: string, options: { readonly hint: string }): OsmosisError {
  return new OsmosisError("VALIDATION", message, options);
}

/** Resolves when nothing has answered for so long; never once the signal has aborted. */
function silence(
  url: string,
  options: { readonly silenceMs: number; readonly fetch: typeof fetch; readonly signal: AbortSignal },
): Promise<void> {
  const { silenceMs, signal } = options;
  return new Promise((resolve) => {
    void (async () => {
      for (let failures = 0; ;) {
        await sleep(silenceMs / 12, undefined, { signal });
        try {
          const deadline = AbortSignal.timeout(silenceMs / 4);
          await (await options.fetch(url, { signal: AbortSignal.any([signal, deadline]) })).arrayBuffer();
          failures = 0;
        } catch {
          // Four times: together with the pauses between them a little longer than was promised.
          if (!signal.aborted && ++failures === 4) return resolve();
        }
      }
    })().catch(() => {});
  });
}

const isPython = (entrypoint: string): boolean => entrypoint.endsWith(".py");

/** Python logs to stderr whatever the level is; lines of uvicorn and of the SDK say it. */
const isInformation = (line: string): boolean => /^(?:[\d-]+ [\d:,]+ )?(?:INFO|DEBUG)\b/.test(line);

/** A TypeScript or JavaScript entrypoint runs on this Node, a Python one in an environment of its rollout. */
async function commandFor(
  entrypoint: string,
  { folder, rollout, environment, worker, onLine, signal }: RolloutProcessRequest,
): Promise<[string, ...string[]]> {
  if (!isPython(entrypoint)) return [process.execPath, entrypoint];
  const python = await pythonFor({
    folder: join(folder, "rollouts", rollout),
    environment,
    onLine: (line) => onLine(line, "stdout"),
    signal,
    ...(worker === undefined ? {} : { worker }),
  });
  return [python, entrypoint];
}

async function healthOf(options: {
  readonly url: string;
  readonly instance: string;
  readonly timeoutMs: number;
  readonly fetch: typeof fetch;
  readonly signal: AbortSignal;
}): Promise<"ready" | "timeout"> {
  const pauseMs = 50;
  for (let waitedMs = 0; waitedMs < options.timeoutMs; waitedMs += pauseMs) {
    if (options.signal.aborted) return "timeout";
    try {
      const response = await options.fetch(`${options.url}/health`, { signal: AbortSignal.timeout(2000) });
      const body = (await response.json()) as { instance_id?: unknown };
      // Another process may have been faster on the port; older SDKs do not say who they are.
      if (response.ok && (body.instance_id === undefined || body.instance_id === options.instance))
        return "ready";
    } catch {
      // Not listening yet.
    }
    await sleep(pauseMs);
  }
  return "timeout";
}

/** The end of what was printed, without the frames of a stack, which would push out the error itself. */
function tail(lines: readonly string[]): string {
  const text = lines
    .filter((line) => line.trim() !== "" && !/^\s+at |^Node\.js v/.test(line))
    .slice(-8)
    .join(" | ");
  return text === "" ? "it printed nothing." : text;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("a listening socket has no port");
  return address.port;
}

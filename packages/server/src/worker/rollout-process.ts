import { randomUUID } from "node:crypto";
import { access, mkdir } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { OsmosisError } from "@osmosis/protocol";
import { startGuarded, type GuardedProcess, type ProcessEnd } from "./guarded-process.ts";

/**
 * The user's rollout server as a child process. It is started, must answer `/health` in time with the instance id that
 * it was given, and is then used until the run ends; when it dies in between, `ended` says so.
 */
export type RolloutProcess = AsyncDisposable & {
  readonly url: string;
  readonly token: string;
  readonly artifactRoot: string;
  readonly ended: Promise<ProcessEnd>;
};

export type RolloutProcessRequest = {
  /** The commit's files. */
  readonly folder: string;
  readonly rollout: string;
  readonly entrypoint: string;
  /** What the child sees of the outside; the platform's own variables are added. */
  readonly environment: Readonly<Record<string, string>>;
  readonly artifactRoot: string;
  readonly onLine: (line: string, stream: "stdout" | "stderr") => void;
  readonly startTimeoutMs?: number;
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
  await mkdir(request.artifactRoot, { recursive: true });
  const instance = randomUUID();
  const token = randomUUID();
  const port = await freePort();
  const lastLines: string[] = [];
  const child = startGuarded(commandFor(entrypoint), {
    folder: dirname(entrypoint),
    environment: {
      ...request.environment,
      _OSMOSIS_ROLLOUT_PORT: String(port),
      _OSMOSIS_ROLLOUT_SERVER_TOKEN: token,
      _OSMOSIS_ROLLOUT_INSTANCE_ID: instance,
      _OSMOSIS_ROLLOUT_ARTIFACT_ROOT: request.artifactRoot,
    },
    signal: request.signal,
    onLine: (line, stream) => {
      lastLines.push(line);
      if (lastLines.length > 20) lastLines.shift();
      request.onLine(line, stream);
    },
  });
  const url = `http://127.0.0.1:${port}`;
  const name = `rollouts/${request.rollout}/${request.entrypoint}`;
  const timeoutMs = request.startTimeoutMs ?? 60_000;
  try {
    const ready = healthOf({ url, instance, timeoutMs, fetch: request.fetch, signal: request.signal });
    const first = await Promise.race([ready, child.ended]);
    request.signal.throwIfAborted();
    if (first === "timeout") {
      throw new OsmosisError(
        "VALIDATION",
        `${name} did not listen on port ${port} within ${timeoutMs / 1000} s.`,
        {
          hint: "The entrypoint must call serveRollout, which listens on the port in _OSMOSIS_ROLLOUT_PORT.",
        },
      );
    }
    if (first !== "ready") {
      throw new OsmosisError(
        "VALIDATION",
        `${name} exited with code ${first.code} before it listened: ${tail(lastLines)}`,
        {
          hint: "Start it by hand: _OSMOSIS_ROLLOUT_PORT=8123 node " + name,
        },
      );
    }
  } catch (error) {
    await child.stop();
    throw error;
  }
  return {
    url,
    token,
    artifactRoot: request.artifactRoot,
    ended: child.ended,
    [Symbol.asyncDispose]: () => dispose(child),
  };
}

async function dispose(child: GuardedProcess): Promise<void> {
  await child.stop();
}

/** A TypeScript or JavaScript entrypoint runs on this Node, anything else on Python. */
function commandFor(entrypoint: string): [string, ...string[]] {
  return entrypoint.endsWith(".py") ? ["python3", entrypoint] : [process.execPath, entrypoint];
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

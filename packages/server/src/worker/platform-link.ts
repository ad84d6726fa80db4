import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { Readable } from "node:stream";
import {
  OsmosisError,
  RUN_LEASE_HEADER,
  committedStepsRoute,
  createClient,
  fillPath,
  workerRoutes,
  workerStreams,
  type Client,
  type Job,
  type LogEntry,
  type RolloutRecord,
  type Share,
  shareRoutes,
} from "@osmosis/protocol";
import type { z } from "zod";
import { chunksOf, leased, linesOf, patiently, reach } from "./platform-call.ts";
import { openShareLink, openSharingLink, type ShareLink, type SharingLink } from "./share-link.ts";

export type WorkerIdentity = { readonly worker: string; readonly instance: string };

/** A worker's line to the platform. */
export type PlatformLink = {
  /** Waits for a run; null when none came in time. */
  claim(
    identity: WorkerIdentity,
    options: { readonly waitMs: number; readonly lane: "runs" | "replays"; readonly signal: AbortSignal },
  ): Promise<Job | null>;
  /** The line to one run, in the name of its lease. */
  run(runId: string, leaseToken: string): RunLink;
  /** Waits for a share of another worker's run; null when none came in time, or a run waits. */
  claimShare(
    identity: WorkerIdentity,
    options: {
      readonly waitMs: number;
      readonly exceptRuns: readonly string[];
      readonly signal: AbortSignal;
    },
  ): Promise<Share | null>;
  /** The line to one share, in the name of its lease. */
  share(shareId: string, leaseToken: string): ShareLink;
  /**
   * Reads a file reference, or a stream route of the platform. `use` gets the body from its beginning, and again from its
   * beginning when the connection breaks in the middle.
   */
  read<Result>(
    path: string,
    use: (body: Readable) => Promise<Result>,
    options: { readonly leaseToken?: string; readonly signal: AbortSignal },
  ): Promise<Result>;
};

/**
 * Every call is repeated while the platform cannot be reached, since each of them may be made twice: a restart of the
 * server is a pause, not a failure. Calls of a lost lease throw `LeaseLost`.
 */
export type RunLink = SharingLink & {
  heartbeat(signal: AbortSignal): Promise<{ stop_requested: boolean }>;
  record(rollouts: readonly RolloutRecord[], signal: AbortSignal): Promise<void>;
  commitStep(
    step: z.input<NonNullable<typeof workerRoutes.commitStep.body>>,
    signal: AbortSignal,
  ): Promise<void>;
  /** What the committed steps after the given one measured. */
  committedSteps(
    after: number,
    signal: AbortSignal,
  ): Promise<z.output<typeof committedStepsRoute.response>["steps"]>;
  checkpoint(
    checkpoint: z.input<NonNullable<typeof workerRoutes.checkpoint.body>>,
    signal: AbortSignal,
  ): Promise<{ name: string }>;
  log(entries: readonly LogEntry[], signal: AbortSignal): Promise<void>;
  finish(status: "finished" | "failed" | "stopped", error: string | null, signal: AbortSignal): Promise<void>;
  /** Uploads a file of the run; `path` begins with `state/<step>/`, `checkpoints/<step>/` or `weights/<version>/`. */
  putFile(path: string, file: string, signal: AbortSignal): Promise<void>;
  /** The lines of a stream route, parsed. */
  lines<Row>(
    route: "rows" | "rollouts" | "stepRollouts",
    schema: z.ZodType<Row>,
    signal: AbortSignal,
    more?: { readonly step: string },
  ): Promise<Row[]>;
  /** Reads the commit's files as a tar archive, in the way of `PlatformLink.read`. */
  source(use: (archive: Readable) => Promise<void>, signal: AbortSignal): Promise<void>;
};

export function openPlatformLink(options: {
  readonly url: string;
  readonly token: string;
  readonly fetch: typeof fetch;
  /** How long the platform may be away before a call gives up. */
  readonly patienceMs?: number;
}): PlatformLink {
  const headers = { authorization: `Bearer ${options.token}` };
  const client = createClient({ baseUrl: options.url, fetch: options.fetch, headers: () => headers });
  const patienceMs = options.patienceMs ?? 10 * 60_000;

  const read: PlatformLink["read"] = (path, use, { leaseToken, signal }) =>
    patiently({ signal, patienceMs }, async () => {
      const response = await reach(options.fetch, new URL(path, client.baseUrl), {
        headers: { ...headers, ...(leaseToken === undefined ? {} : { [RUN_LEASE_HEADER]: leaseToken }) },
        signal,
      });
      if (response.body === null) throw new OsmosisError("PLATFORM_ERROR", `${path} has no body.`);
      return use(Readable.from(chunksOf(response.body, path)));
    });

  return {
    read,
    async claim(identity, { waitMs, lane, signal }) {
      const answer = await client.call(workerRoutes.claim, {
        body: { ...identity, wait_ms: waitMs, lane },
        timeoutMs: waitMs + 15_000,
        signal,
      });
      return answer.job;
    },
    run: (runId, leaseToken) =>
      openRunLink({ client, read, fetch: options.fetch, headers, runId, leaseToken, patienceMs }),
    async claimShare(identity, { waitMs, exceptRuns, signal }) {
      const answer = await client.call(shareRoutes.claim, {
        body: { ...identity, wait_ms: waitMs, except_runs: [...exceptRuns] },
        timeoutMs: waitMs + 15_000,
        signal,
      });
      return answer.share;
    },
    share: (shareId, leaseToken) => openShareLink({ client, read, shareId, leaseToken, patienceMs }),
  };
}

function openRunLink(parts: {
  readonly client: Client;
  readonly read: PlatformLink["read"];
  readonly fetch: typeof fetch;
  readonly headers: Readonly<Record<string, string>>;
  readonly runId: string;
  readonly leaseToken: string;
  readonly patienceMs: number;
}): RunLink {
  const { client, runId, leaseToken, patienceMs } = parts;
  const params = { run_id: runId };
  const headers = { [RUN_LEASE_HEADER]: leaseToken };
  const again = <Result>(signal: AbortSignal, call: () => Promise<Result>): Promise<Result> =>
    leased(patiently({ signal, patienceMs }, call));
  return {
    ...openSharingLink({ client, params, headers, again }),
    heartbeat: (signal) =>
      again(signal, () =>
        client.call(workerRoutes.heartbeat, { params, headers, body: {}, signal, timeoutMs: 5000 }),
      ),
    async record(rollouts, signal) {
      await again(signal, () =>
        client.call(workerRoutes.record, { params, headers, body: { rollouts: [...rollouts] }, signal }),
      );
    },
    async commitStep(step, signal) {
      await again(signal, () =>
        client.call(workerRoutes.commitStep, { params, headers, body: step, signal }),
      );
    },
    async committedSteps(after, signal) {
      const { steps } = await again(signal, () =>
        client.call(committedStepsRoute, { params, headers, query: { after }, signal }),
      );
      return steps;
    },
    checkpoint: (checkpoint, signal) =>
      again(signal, () =>
        client.call(workerRoutes.checkpoint, { params, headers, body: checkpoint, signal }),
      ),
    async log(entries, signal) {
      await again(signal, () =>
        client.call(workerRoutes.log, { params, headers, body: { entries: [...entries] }, signal }),
      );
    },
    async finish(status, error, signal) {
      await again(signal, () =>
        client.call(workerRoutes.finish, { params, headers, body: { status, error }, signal }),
      );
    },
    async putFile(path, file, signal) {
      const { size } = await stat(file);
      const url = new URL(fillPath(workerStreams.file, { run_id: runId, path }), client.baseUrl);
      await again(signal, () =>
        reach(parts.fetch, url, {
          method: "PUT",
          headers: { ...parts.headers, ...headers, "content-length": String(size) },
          // The two declarations of a web stream, of the DOM and of Node, name one thing.
          body: Readable.toWeb(createReadStream(file)) as unknown as ReadableStream,
          duplex: "half",
          signal,
        }),
      );
    },
    lines: (route, schema, signal, more) =>
      leased(
        parts.read(
          fillPath(workerStreams[route], { ...params, ...more }),
          async (body) => {
            const rows = [];
            for await (const line of linesOf(body)) rows.push(schema.parse(JSON.parse(line)));
            return rows;
          },
          { leaseToken, signal },
        ),
      ),
    source: (use, signal) =>
      leased(parts.read(fillPath(workerStreams.source, params), use, { leaseToken, signal })),
  };
}

import { rm } from "node:fs/promises";
import { join } from "node:path";
import {
  batchedWriter,
  connectRolloutServer,
  driveRollout,
  openGateway,
  type DriveRolloutOptions,
  type Gateway,
  type RolloutServer,
} from "@osmosis/controller";
import { loadChatCodec, type Sampler, type TrainingService } from "@osmosis/engine";
import { OsmosisError, errorMessage, type DatasetRow, type Share } from "@osmosis/protocol";
import { childEnvironment, prepareEnvironment } from "./environment.ts";
import type { WorkerTools } from "./execute-run.ts";
import { keepLease } from "./lease-keeper.ts";
import { LeaseLost } from "./platform-call.ts";
import { removeEmpty, rolloutRecorder } from "./record-rollouts.ts";
import { startRolloutProcess, type RolloutProcess } from "./rollout-process.ts";
import { hiddenTexts, openRunLog, type RunLog } from "./run-log.ts";
import { openPolicy } from "./sampling-policy.ts";
import type { ShareLink } from "./share-link.ts";
import { localModel } from "./trained-model.ts";

/**
 * Runs rollouts of runs that other workers hold. What a run needs (its commit's environment, its rollout server, a sampler
 * with its newest weights) is opened with the first share of the run and kept for the next ones.
 */
export type Helping = AsyncDisposable & {
  /** Runs that this worker could not help a while ago. */
  readonly exceptRuns: () => string[];
  /** Brings the rollouts of a share to their end, or gives it back. Never rejects. */
  work(share: Share, link: ShareLink): Promise<void>;
  /** Closes what is open for a run. */
  leave(): Promise<void>;
  /** The same, unless the last share came a moment ago. */
  leaveWhenIdle(): Promise<void>;
};

/** So long a rollout server and a sampler wait for the next share. */
const IDLE_MS = 45_000;
/** So long a run is left to others after this worker failed to help it; twice as long after each further failure. */
const RETRY_MS = 60_000;
const LONGEST_RETRY_MS = 30 * 60_000;

export function openHelping(
  tools: WorkerTools,
  options: {
    readonly now: () => Date;
    readonly say: (text: string) => void;
    readonly signal: AbortSignal;
    readonly retryMs?: number;
  },
): Helping {
  const { say } = options;
  const failures = openFailures(() => options.now().getTime(), options.retryMs ?? RETRY_MS);
  let place: Workplace | undefined;
  let workedAt = 0;

  async function leave(): Promise<void> {
    const former = place;
    place = undefined;
    await former?.close();
  }

  return {
    exceptRuns: failures.recent,
    leave,
    async leaveWhenIdle() {
      if (options.now().getTime() - workedAt > IDLE_MS) await leave();
    },
    [Symbol.asyncDispose]: leave,
    async work(share, link) {
      await using lease = keepLease({
        link,
        leaseSeconds: share.lease_seconds,
        now: () => options.now().getTime(),
        signal: options.signal,
      });
      try {
        if (place?.runId !== share.run_id) {
          await leave();
          say(`helps with the run ${share.run_name}`);
          place = openWorkplace(share, tools, options);
        }
        await place.work(share, link, lease.signal);
        workedAt = options.now().getTime();
        failures.forget(share.run_id);
      } catch (error) {
        const reason: unknown = lease.signal.aborted ? lease.signal.reason : error;
        // What a rollout server printed before it ended is in the text.
        const text = place?.hide(errorMessage(reason)) ?? errorMessage(reason);
        await leave();
        say(`${share.run_name}: ${text}`);
        if (reason instanceof LeaseLost || options.signal.aborted) return;
        failures.add(share.run_id);
        await link.giveBack(text, options.signal).catch(() => {});
      }
    },
  };
}

/** Remembers for how long each run that could not be helped is left alone. */
function openFailures(now: () => number, retryMs: number) {
  const known = new Map<string, { readonly until: number; readonly waitMs: number }>();
  return {
    add(runId: string): void {
      for (const [id, { until }] of known) if (until + LONGEST_RETRY_MS < now()) known.delete(id);
      const waitMs = Math.min((known.get(runId)?.waitMs ?? retryMs / 2) * 2, LONGEST_RETRY_MS);
      known.delete(runId);
      known.set(runId, { until: now() + waitMs, waitMs });
    },
    forget: (runId: string): void => void known.delete(runId),
    /** Those that failed last come last; a claim names a thousand at most. */
    recent: (): string[] => [...known].flatMap(([id, { until }]) => (until > now() ? [id] : [])).slice(-1000),
  };
}

/** All that is open for the rollouts of one run. */
type Workplace = {
  readonly runId: string;
  /** The text without the run's secrets. */
  hide(text: string): string;
  work(share: Share, link: ShareLink, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
};

type Opened = {
  readonly rollouts: RolloutProcess;
  readonly server: RolloutServer;
  readonly gateway: Gateway;
  readonly rows: ReadonlyMap<number, DatasetRow>;
  /** Makes the weights of the share those that are sampled from. */
  readonly useWeights: (share: Share, signal: AbortSignal) => Promise<void>;
};

function openWorkplace(first: Share, tools: WorkerTools, options: { readonly now: () => Date }): Workplace {
  const folder = join(tools.dataFolder, "helping", first.run_id);
  const stack = new AsyncDisposableStack();
  const closing = new AbortController();
  let current: ShareLink | undefined;
  let opened: Opened | undefined;
  // Lines go out under the lease of the share that is worked on.
  const log = openRunLog({
    link: { log: async (entries, signal) => current?.log(entries, signal) },
    secrets: hiddenTexts(first),
    now: options.now,
    signal: closing.signal,
  });
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  stack.use(log);

  return {
    runId: first.run_id,
    hide: (text) => log.hide(text),
    async work(share, link, outer) {
      current = link;
      const died = new AbortController();
      opened ??= await open(first, link, {
        tools,
        folder,
        stack,
        log,
        signal: AbortSignal.any([outer, closing.signal]),
      });
      const { rollouts, server, gateway, rows, useWeights } = opened;
      void rollouts.failed.then((error) => died.abort(error));
      const signal = AbortSignal.any([outer, died.signal, gateway.lost]);
      await useWeights(share, signal);
      const record = batchedWriter(
        rolloutRecorder({
          artifactRoot: rollouts.artifactRoot,
          log,
          send: (records) => link.record(records, signal),
        }),
      );
      const results = await Promise.allSettled(
        share.tasks.map(async (task) => {
          const row = rows.get(task.row_index);
          if (row === undefined) throw new OsmosisError("NOT_FOUND", `There is no row ${task.row_index}.`);
          // Written by `taskOf` of this very program, at the holder of the run.
          const order = task.options as unknown as Omit<
            DriveRolloutOptions,
            "server" | "gateway" | "row" | "clock" | "signal"
          >;
          await record(await driveRollout({ ...order, row, server, gateway, clock: tools.clock, signal }));
        }),
      );
      signal.throwIfAborted();
      for (const result of results) if (result.status === "rejected") throw result.reason;
      await log.flush();
    },
    async close() {
      closing.abort(new Error("the worker leaves the run"));
      await stack.disposeAsync();
    },
  };
}

async function open(
  share: Share,
  link: ShareLink,
  parts: {
    readonly tools: WorkerTools;
    readonly folder: string;
    readonly stack: AsyncDisposableStack;
    readonly log: RunLog;
    readonly signal: AbortSignal;
  },
): Promise<Opened> {
  const { tools, folder, stack, log, signal } = parts;
  const code = await prepareEnvironment({
    root: join(tools.dataFolder, "environments"),
    commit: share.commit_sha,
    source: (use, innerSignal) => link.source(use, innerSignal),
    environment: childEnvironment(tools.environment),
    onLine: (line) => log.write("info", "prepare", line),
    signal,
  });
  const rows = await link.rows(signal);
  const { gateway, useWeights } = await openSampling(share, parts);
  const rollouts = stack.use(
    await startRolloutProcess({
      folder: code,
      rollout: share.rollout,
      entrypoint: share.entrypoint,
      environment: childEnvironment(tools.environment),
      variables: { ...share.env, ...share.secrets },
      artifactRoot: join(folder, "artifacts"),
      onLine: (line, stream) => log.write(stream === "stderr" ? "warning" : "info", "rollout", line),
      ...(tools.rolloutTimeouts === undefined ? {} : { timeouts: tools.rolloutTimeouts }),
      ...(tools.worker === undefined ? {} : { worker: tools.worker }),
      fetch: tools.fetch,
      signal,
    }),
  );
  stack.defer(() => removeEmpty(join(folder, "artifacts"), folder));
  const server = connectRolloutServer({
    baseUrl: rollouts.url,
    apiKey: rollouts.token,
    fetch: tools.fetch,
    clock: tools.clock,
  });
  return { rollouts, server, gateway, useWeights, rows: new Map(rows.map((row) => [row.row_index, row])) };
}

/** The gateway of an evaluation samples from the model as it is, that of a training run from the newest weights. */
async function openSampling(
  share: Share,
  parts: Parameters<typeof open>[2],
): Promise<Pick<Opened, "gateway" | "useWeights">> {
  const { tools, folder, stack, signal } = parts;
  const { model } = share;
  if (share.weights === null || model.type === "provider") {
    const policy = await openPolicy(share, { tools, folder, opened: stack, signal });
    const gateway = stack.use(await openGateway({ policy, clock: tools.clock }));
    return { gateway, useWeights: async () => {} };
  }
  const { folder: base } = await localModel(model, parts);
  const service = stack.use(await tools.openService());
  const sampler = stack.use(exchangeableSampler(service));
  const useWeights = async ({ weights }: Share, inner: AbortSignal): Promise<void> => {
    if (weights === null) throw new OsmosisError("PLATFORM_ERROR", "The share names no weights.");
    await sampler.use(weights, async () => {
      const target = join(folder, "weights");
      const files = await tools.files.folderOf(weights.files, target, inner, "once");
      return weights.method === "full" ? { folder: files } : { folder: base, adapter: files };
    });
  };
  await useWeights(share, signal);
  const policy = { type: "local" as const, name: model.name, sampler, codec: await loadChatCodec(base) };
  return { gateway: stack.use(await openGateway({ policy, clock: tools.clock })), useWeights };
}

type Weights = NonNullable<Share["weights"]>;

/** A sampler whose weights are exchanged while nothing is sampled; it answers with their version. */
function exchangeableSampler(service: TrainingService): Sampler & {
  use(weights: Weights, fetchModel: () => Promise<{ folder: string; adapter?: string }>): Promise<void>;
} {
  let inner: { readonly sampler: Sampler; readonly version: number; readonly content: string } | undefined;
  const current = () => {
    if (inner === undefined) throw new Error("no weights were loaded");
    return inner;
  };
  return {
    get contextLength() {
      return current().sampler.contextLength;
    },
    async sample(request) {
      const { sampler, version } = current();
      return { ...(await sampler.sample(request)), weightsVersion: version };
    },
    endConversation: (conversation) => inner?.sampler.endConversation(conversation),
    async use(weights, fetchModel) {
      const content = weights.files.map(({ name, sha256 }) => `${name} ${sha256}`).join("\n");
      if (inner?.content === content && inner.version === weights.version) return;
      await inner?.sampler[Symbol.asyncDispose]();
      inner = undefined;
      const sampler = await service.openSampler(await fetchModel());
      inner = { sampler, version: weights.version, content };
    },
    async [Symbol.asyncDispose]() {
      await inner?.sampler[Symbol.asyncDispose]();
    },
  };
}

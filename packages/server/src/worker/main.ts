import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { systemClock } from "@osmosis/controller";
import { createEmbeddedService } from "@osmosis/engine";
import { OsmosisError, errorMessage, type Job } from "@osmosis/protocol";
import { executeRun, type WorkerTools } from "./execute-run.ts";
import { openFileCache } from "./file-cache.ts";
import { StopRequested, keepLease } from "./lease-keeper.ts";
import { LeaseLost, openPlatformLink, type PlatformLink, type RunLink } from "./platform-link.ts";
import { openRunLog } from "./run-log.ts";

/**
 * The worker process: claims a run, executes it, claims the next one. It needs the platform's URL and a worker token,
 * nothing else of it, so it may run on any machine that reaches the platform.
 *
 *     node main.ts --platform http://127.0.0.1:8700 --token-file FILE --data DIR [--name NAME] [--threads N] [--supervised]
 *
 * With `--supervised` it ends when its stdin closes, that is, when whoever started it is gone.
 */
const { values: flags } = parseArgs({
  options: {
    platform: { type: "string" },
    "token-file": { type: "string" },
    data: { type: "string" },
    name: { type: "string" },
    threads: { type: "string", default: "2" },
    supervised: { type: "boolean", default: false },
  },
});
if (flags.platform === undefined || flags["token-file"] === undefined || flags.data === undefined) {
  process.stderr.write(
    "usage: main.ts --platform URL --token-file FILE --data DIR [--name NAME] [--threads N]\n",
  );
  process.exit(2);
}

const ending = new AbortController();
const end = (): void => ending.abort(new Error("the worker is ending"));
process.once("SIGTERM", end);
process.once("SIGINT", end);
if (flags.supervised) process.stdin.on("end", end).on("close", end).on("error", end).resume();

const dataFolder = resolve(flags.data);
const link = openPlatformLink({
  url: flags.platform,
  token: readFileSync(flags["token-file"], "utf8").trim(),
  fetch,
});
const tools: WorkerTools = {
  dataFolder,
  files: openFileCache(join(dataFolder, "files"), link),
  openService: async () => createEmbeddedService({ threads: Number(flags.threads) }),
  environment: process.env,
  fetch,
  clock: systemClock,
};
await work(link, { worker: flags.name ?? hostname(), instance: randomUUID() });
process.exit(0);

async function work(platform: PlatformLink, identity: { worker: string; instance: string }): Promise<void> {
  while (!ending.signal.aborted) {
    let job: Job | null;
    try {
      job = await platform.claim(identity, { waitMs: 20_000, signal: ending.signal });
    } catch (error) {
      if (ending.signal.aborted) return;
      say(`claiming a run failed: ${errorMessage(error)}`);
      await sleep(1000, undefined, { signal: ending.signal }).catch(() => {});
      continue;
    }
    if (job !== null) await execute(platform, job);
  }
}

/** Executes one run, and tells the platform how it ended: unless the run is not ours any more. */
async function execute(platform: PlatformLink, job: Job): Promise<void> {
  const run = platform.run(job.run_id, job.lease_token);
  say(`${job.kind} run ${job.run_name}, attempt ${job.attempt}`);
  await using lease = keepLease({ link: run, leaseSeconds: job.lease_seconds, signal: ending.signal });
  await using log = openRunLog({
    link: run,
    secrets: Object.values(job.secrets),
    now: () => new Date(),
    signal: ending.signal,
  });
  try {
    const ended = await executeRun(job, tools, { link: run, log, signal: lease.signal });
    await log.flush();
    await run.finish(ended.status, ended.status === "failed" ? ended.error : null, ending.signal);
  } catch (error) {
    await finishAfter(error, { job, run, log, leaseSignal: lease.signal });
  }
}

async function finishAfter(
  error: unknown,
  parts: { job: Job; run: RunLink; log: ReturnType<typeof openRunLog>; leaseSignal: AbortSignal },
): Promise<void> {
  const reason: unknown = parts.leaseSignal.aborted ? parts.leaseSignal.reason : error;
  if (reason instanceof StopRequested) {
    await parts.log.flush();
    return parts.run.finish("stopped", null, ending.signal);
  }
  // The platform hands the run out again: to us after a restart, or to another worker.
  if (reason instanceof LeaseLost || ending.signal.aborted) {
    return say(`${parts.job.run_name}: ${errorMessage(reason)}`);
  }
  const expected = error instanceof OsmosisError;
  const text = expected && error.hint !== undefined ? `${error.message} ${error.hint}` : errorMessage(error);
  parts.log.write("error", "worker", expected || !(error instanceof Error) ? text : (error.stack ?? text));
  await parts.log.flush();
  try {
    await parts.run.finish("failed", text, ending.signal);
  } catch (failure) {
    say(`${parts.job.run_name}: the end could not be told: ${errorMessage(failure)}`);
  }
}

function say(text: string): void {
  process.stderr.write(`worker: ${text}\n`);
}

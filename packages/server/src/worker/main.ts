import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect, parseArgs } from "node:util";
import { systemClock } from "@osmosis/controller";
import { ModelLost, createEmbeddedService } from "@osmosis/engine";
import { OsmosisError, REPLAY_WORKER_SUFFIX, errorMessage, type Job } from "@osmosis/protocol";
import { executeReplay } from "./execute-replay.ts";
import { executeRun, type WorkerTools } from "./execute-run.ts";
import { openFileCache } from "./file-cache.ts";
import { openHelping, type Helping } from "./helping.ts";
import { StopRequested, keepLease } from "./lease-keeper.ts";
import { LeaseLost } from "./platform-call.ts";
import { openPlatformLink, type PlatformLink, type RunLink } from "./platform-link.ts";
import { hiddenTexts, openRunLog } from "./run-log.ts";
import { defaultWorkerName } from "./worker-name.ts";

/**
 * The worker process: claims a run, executes it, claims the next one. It needs the platform's URL and a worker token,
 * nothing else of it, so it may run on any machine that reaches the platform.
 *
 *     node main.ts --platform http://127.0.0.1:8700 --token-file FILE --data DIR [--name NAME] [--threads N] [--json] [--supervised]
 *
 * With `--json` it prints one line when the platform has taken its token: `{"event":"accepted","worker":NAME}`.
 *
 * Without `--name` it is the host's name with a suffix that is kept in the data folder.
 *
 * With `--supervised` it ends when its stdin closes, that is, when whoever started it is gone.
 *
 * OSMOSIS_ROLLOUT_START_TIMEOUT_S is how long an entrypoint may take until it listens, OSMOSIS_ROLLOUT_SILENCE_TIMEOUT_S
 * how long it may give no answer later; a minute each. OSMOSIS_TRAINER_PATIENCE_S is how long a trainer by URL may be
 * away, five minutes without it.
 */
const { values: flags } = parseArgs({
  options: {
    platform: { type: "string" },
    "token-file": { type: "string" },
    data: { type: "string" },
    name: { type: "string" },
    threads: { type: "string", default: "2" },
    json: { type: "boolean", default: false },
    supervised: { type: "boolean", default: false },
  },
});
if (flags.platform === undefined || flags["token-file"] === undefined || flags.data === undefined) {
  process.stderr.write(
    "usage: main.ts --platform URL --token-file FILE --data DIR [--name NAME] [--threads N] [--json]\n",
  );
  process.exit(2);
}

// Whoever reads what is printed may be gone; that must not keep the worker from ending what it holds.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});

const ending = new AbortController();
/** Everything that is under way is told to end; what has not ended by then is left to the platform's recovery. */
const LONGEST_END_MS = 15_000;
const end = (): void => {
  ending.abort(new Error("the worker is ending"));
  setTimeout(() => process.exit(1), LONGEST_END_MS).unref();
};
process.once("SIGTERM", end);
process.once("SIGINT", end);
if (flags.supervised) process.stdin.on("end", end).on("close", end).on("error", end).resume();

const CLAIM_WAIT_MS = 20_000;
const LONGEST_PAUSE_MS = 8000;
/** The exit code for a token that the platform does not take: starting again does not help. */
const REFUSED = 77;

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
  rolloutTimeouts: {
    startMs: secondsOf("OSMOSIS_ROLLOUT_START_TIMEOUT_S", 60) * 1000,
    silenceMs: secondsOf("OSMOSIS_ROLLOUT_SILENCE_TIMEOUT_S", 60) * 1000,
  },
  trainerPatienceMs: secondsOf("OSMOSIS_TRAINER_PATIENCE_S", 300) * 1000,
  fetch,
  clock: systemClock,
};
let isAccepted = false;
{
  await using own = flags.name === undefined ? await defaultWorkerName(dataFolder, hostname()) : undefined;
  const worker = flags.name ?? own?.name ?? hostname();
  // Replays are asked for while runs go on, which take hours. Each lane holds one at a time, under a name of its own.
  await Promise.all([
    work(link, { worker, instance: randomUUID() }, "runs"),
    work(link, { worker: `${worker}${REPLAY_WORKER_SUFFIX}`, instance: randomUUID() }, "replays"),
  ]);
}
process.exit(0);

async function work(
  platform: PlatformLink,
  identity: { worker: string; instance: string },
  lane: "runs" | "replays",
): Promise<void> {
  await using helping =
    lane === "runs"
      ? openHelping(
          { ...tools, worker: identity.worker },
          { now: () => new Date(), say, signal: ending.signal },
        )
      : undefined;
  for (let failures = 0; !ending.signal.aborted;) {
    try {
      // Runs come first. Who has none looks for one that needs help, and hears at once when a run waits.
      const job = await platform.claim(identity, {
        waitMs: helping === undefined ? CLAIM_WAIT_MS : 0,
        lane,
        signal: ending.signal,
      });
      failures = 0;
      if (lane === "runs") sayAccepted(identity.worker);
      if (job !== null) {
        await helping?.leave();
        await execute(platform, job, identity.worker);
      } else if (helping !== undefined) {
        await help(platform, identity, helping);
      }
    } catch (error) {
      if (ending.signal.aborted) return;
      if (error instanceof OsmosisError && error.code === "AUTH_REQUIRED") {
        say(`the platform refuses this worker's token: ${error.message} ${error.hint ?? ""}`);
        process.exit(REFUSED);
      }
      if (failures === 0) say(`claiming a run failed, and is tried again: ${errorMessage(error)}`);
      failures += 1;
      const pauseMs = Math.min(1000 * 2 ** (failures - 1), LONGEST_PAUSE_MS);
      await sleep(pauseMs, undefined, { signal: ending.signal }).catch(() => {});
    }
  }
}

/** Only an answer to a claim tells that the platform is there and takes the token. */
function sayAccepted(worker: string): void {
  if (isAccepted) return;
  isAccepted = true;
  if (flags.json) process.stdout.write(`${JSON.stringify({ event: "accepted", worker })}\n`);
}

/** Works on a share of another worker's run, if there is one. */
async function help(
  platform: PlatformLink,
  identity: { worker: string; instance: string },
  helping: Helping,
): Promise<void> {
  const share = await platform.claimShare(identity, {
    waitMs: CLAIM_WAIT_MS,
    exceptRuns: helping.exceptRuns(),
    signal: ending.signal,
  });
  if (share === null) await helping.leaveWhenIdle();
  else await helping.work(share, platform.share(share.share_id, share.lease_token));
}

/** Executes one run, and tells the platform how it ended: unless the run is not ours any more. */
async function execute(platform: PlatformLink, job: Job, worker: string): Promise<void> {
  const run = platform.run(job.run_id, job.lease_token);
  say(`${job.kind} run ${job.run_name}, attempt ${job.attempt}`);
  await using lease = keepLease({
    link: run,
    leaseSeconds: job.lease_seconds,
    now: () => Date.now(),
    signal: ending.signal,
  });
  await using log = openRunLog({
    link: run,
    secrets: hiddenTexts(job),
    now: () => new Date(),
    signal: ending.signal,
  });
  try {
    const parts = { link: run, log, signal: lease.signal };
    const ended =
      job.kind === "replay"
        ? await executeReplay(job, tools, parts)
        : await executeRun(job, { ...tools, worker }, parts);
    await log.flush();
    const failure = ended.status === "failed" ? log.hide(ended.error) : null;
    await run.finish(ended.status, failure, ending.signal);
  } catch (error) {
    await finishAfter(error, { job, run, log, leaseSignal: lease.signal });
  }
}

async function finishAfter(
  error: unknown,
  parts: { job: Job; run: RunLink; log: ReturnType<typeof openRunLog>; leaseSignal: AbortSignal },
): Promise<void> {
  const { job, run, log } = parts;
  const reason: unknown = parts.leaseSignal.aborted ? parts.leaseSignal.reason : error;
  if (reason instanceof ModelLost) {
    log.write("warning", "trainer", `${reason.message} ${reason.hint ?? ""}`);
    await log.flush();
  }
  // The platform hands the run out again: to us after a restart, or to another worker.
  if (
    reason instanceof LeaseLost ||
    reason instanceof ModelLost ||
    (ending.signal.aborted && !(reason instanceof StopRequested))
  ) {
    return say(`${job.run_name}: ${errorMessage(reason)}`);
  }
  const status = reason instanceof StopRequested ? "stopped" : "failed";
  const text = status === "stopped" ? null : log.hide(textOf(error));
  if (text !== null) log.write("error", "worker", isOwnFault(error) ? inspect(error) : text);
  await log.flush();
  try {
    await run.finish(status, text, ending.signal);
  } catch (failure) {
    say(`${job.run_name}: the end could not be told: ${errorMessage(failure)}`);
  }
}

/** For a person: what happened, why, and what to do next. */
function textOf(error: unknown): string {
  const text = errorMessage(error);
  return error instanceof OsmosisError && error.hint !== undefined ? `${text} ${error.hint}` : text;
}

/** A fault of the platform, whose stack and causes somebody has to see. */
function isOwnFault(error: unknown): boolean {
  return !(error instanceof OsmosisError) || error.code === "INTERNAL";
}

function secondsOf(name: string, preset: number): number {
  const seconds = Number(process.env[name] ?? preset);
  if (Number.isFinite(seconds) && seconds > 0) return seconds;
  process.stderr.write(`${name} is not a number of seconds above 0.\n`);
  return process.exit(2);
}

function say(text: string): void {
  process.stderr.write(`worker: ${text}\n`);
}

/**
 * Two programs side by side on one workload: ours and the peer's, each a process of its own, taking turns. While one
 * works the other waits, so that whatever else this machine does meets both. Both sides speak the same few lines:
 *
 *     side  → {"ready": {"library": "version", ...}}
 *     duel  → round                                    (one line per round, the warm-ups too)
 *     side  → {"seconds": 1.2, "cpuSeconds": 2.1, "facts": {"loss": 0.1}}
 *
 * A side measures its own seconds, so that starting processes and passing lines does not count. `rounds.py` is the
 * same for Python.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { cpus } from "node:os";
import { createInterface } from "node:readline";
import { z } from "zod";

/** What a side found out about its work, such as a loss or a number of tokens, for the reader to compare. */
export type Facts = Readonly<Record<string, number>>;

export type Side = { readonly name: string; readonly command: string; readonly args: readonly string[] };

export type Outcome = {
  readonly name: string;
  readonly medianSeconds: number;
  /** Of all cores together; on a busy machine the steadier number. */
  readonly medianCpuSeconds: number;
  /** The most memory that the process held, its warm-up included; 0 where the system does not tell (Linux does). */
  readonly maxRssBytes: number;
  readonly firstFacts: Facts;
  readonly facts: Facts;
  readonly versions: Readonly<Record<string, string>>;
};

export type Duel = {
  readonly ours: Outcome;
  readonly peer: Outcome;
  /** How many times as long the peer takes: the median over the rounds, each against the round beside it. */
  readonly ratio: number;
};

/** Runs both sides `warmUps + rounds` times in turn; the warm-ups are not counted. */
export async function duel(
  ours: Side,
  peer: Side,
  { rounds, warmUps }: { readonly rounds: number; readonly warmUps: number },
): Promise<Duel> {
  await using left = await start(ours);
  await using right = await start(peer);
  for (let round = 0; round < warmUps + rounds; round++) {
    await left.round();
    await right.round();
  }
  const ratios = left.results
    .slice(warmUps)
    .map(({ seconds }, i) => (right.results[warmUps + i]?.seconds ?? NaN) / seconds);
  return {
    ours: await outcomeOf(left, warmUps),
    peer: await outcomeOf(right, warmUps),
    ratio: median(ratios),
  };
}

/** Answers the rounds that a duel asks for on standard input, until it closes. */
export async function serveRounds(versions: Readonly<Record<string, string>>, round: () => Promise<Facts>) {
  console.log(JSON.stringify({ ready: versions }));
  for await (const _line of createInterface({ input: process.stdin })) {
    const start = performance.now();
    const cpuBefore = cpuSecondsSoFar();
    const facts = await round();
    const seconds = (performance.now() - start) / 1000;
    const cpuSeconds = cpuSecondsSoFar() - cpuBefore;
    console.log(JSON.stringify({ seconds, cpuSeconds, facts } satisfies Result));
  }
}

function cpuSecondsSoFar(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** What this machine is, for the head of a table. */
export function machine(): string {
  return `${cpus()[0]?.model ?? "unknown processor"}, ${cpus().length} cores, Node ${process.version}`;
}

const Ready = z.object({ ready: z.record(z.string(), z.string()) });
const Result = z.object({
  seconds: z.number(),
  cpuSeconds: z.number(),
  facts: z.record(z.string(), z.number()),
});
type Result = z.infer<typeof Result>;

/**
 * Lets PyTorch's threads sleep while they wait for each other. Spinning, its default, is a few per cent faster on an idle
 * machine and many times slower on a busy one; set the variable to have it.
 */
const QUIET_WAITS = { OMP_WAIT_POLICY: "PASSIVE" };

type RunningSide = AsyncDisposable & {
  readonly name: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly results: readonly Result[];
  readonly maxRssBytes: () => Promise<number>;
  readonly round: () => Promise<void>;
};

async function start({ name, command, args }: Side): Promise<RunningSide> {
  const child = spawn(command, args, {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...QUIET_WAITS, ...process.env },
  });
  const exited = once(child, "exit");
  // What libraries say on the way is of interest only when the side fails.
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said = (said + text).slice(-4000);
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const read = async (): Promise<unknown> => {
    const { value, done } = await lines.next();
    if (done) {
      const [code, signal] = await exited;
      throw new Error(`${name} ended (${code ?? signal}):\n${said}`);
    }
    return JSON.parse(value);
  };
  const { ready: versions } = Ready.parse(await read());
  const results: Result[] = [];
  return {
    name,
    versions,
    results,
    async maxRssBytes() {
      const status = await readFile(`/proc/${child.pid}/status`, "utf8").catch(() => "");
      return 1024 * Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0);
    },
    async round() {
      child.stdin.write("round\n");
      results.push(Result.parse(await read()));
    },
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      child.kill();
      await exited;
    },
  };
}

async function outcomeOf(side: RunningSide, warmUps: number): Promise<Outcome> {
  const { name, versions, results } = side;
  return {
    name,
    versions,
    medianSeconds: median(results.slice(warmUps).map(({ seconds }) => seconds)),
    medianCpuSeconds: median(results.slice(warmUps).map(({ cpuSeconds }) => cpuSeconds)),
    maxRssBytes: await side.maxRssBytes(),
    firstFacts: results[0]?.facts ?? {},
    facts: results.at(-1)?.facts ?? {},
  };
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? (sorted[middle] ?? NaN)
    : ((sorted[middle - 1] ?? NaN) + (sorted[middle] ?? NaN)) / 2;
}

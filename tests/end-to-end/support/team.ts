import { mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { workersRoutes } from "@osmosis/protocol";
import { z } from "zod";
import { openDatabase, type Database } from "../../../packages/server/src/database/open.ts";
import { createPostgresDatabase } from "../../../packages/server/src/database/testing.ts";
import { startOsmosis, type RunningCommand } from "./command.ts";
import { addExecutionJournal } from "./journal.ts";
import { startTestPlatform, type TestPlatform } from "./platform.ts";
import { nothingLeft, processesOf } from "./processes.ts";
import { whenThere } from "./runs.ts";
import { until } from "./until.ts";

/**
 * A platform on Postgres that has no worker of its own, and workers that `osmosis worker` holds: they have its address and
 * a token, nothing else. Rollouts write their executions into a journal, and every second one ends late.
 */
export type Team = AsyncDisposable & {
  readonly platform: TestPlatform;
  /** The text of the workers' token. */
  readonly token: string;
  /** Starts workers, and waits until the platform knows them. */
  readonly join: (names: readonly string[], url?: string) => Promise<void>;
  /** What the worker said on stderr, all of it. */
  readonly said: (name: string) => string;
  /** Those that hold the run, or a share of it. */
  readonly workersOn: (runName: string, type: "run" | "share") => Promise<string[]>;
  readonly holderOf: (runName: string) => Promise<string>;
  /** The worker process itself, under what starts it again. */
  readonly processOf: (name: string) => Promise<number>;
  /** SIGKILL to the worker and to what would start it again: the machine is gone. */
  readonly lose: (name: string) => Promise<void>;
  readonly submit: (
    label: string,
    config: { readonly kind: "train" | "eval"; readonly lateMs: number; readonly lines: readonly string[] },
  ) => Promise<{ readonly name: string; readonly journal: string }>;
  /** How many rollouts each worker recorded, as the server's database says. */
  readonly recordedBy: (
    runName: string,
  ) => Promise<readonly (readonly [worker: string | null, count: number])[]>;
  /** The server's own database. */
  readonly database: Database;
};

export async function startTeam(env: Readonly<Record<string, string>>): Promise<Team> {
  await using stack = new AsyncDisposableStack();
  const home = await realpath(await mkdtemp(join(tmpdir(), "osmosis-e2e-workers-")));
  stack.defer(() => rm(home, { recursive: true, force: true, maxRetries: 5 }));
  const { url: databaseUrl } = stack.use(await createPostgresDatabase());
  const platform = stack.use(
    await startTestPlatform({ args: ["--no-worker"], env: { ...env, DATABASE_URL: databaseUrl } }),
  );
  const database = stack.use(await openDatabase({ kind: "url", url: databaseUrl }));
  await addExecutionJournal(platform.workspace);
  await platform.push("Write a journal");
  await platform.answerOf("dataset", "upload", "data/multiply.jsonl");
  const tokenFile = join(home, "token");
  await platform.answerOf("worker", "token", "create", "--name", "team", "--save-to", tokenFile);
  const joined = new Map<string, RunningCommand>();
  stack.defer(async () => {
    for (const worker of joined.values()) worker.kill("SIGTERM");
    await Promise.all([...joined.values()].map(({ ended }) => ended));
    await nothingLeft(home);
  });
  const { DATABASE_URL: _database, ...workerEnv } = platform.env;
  const workers = async () => (await platform.client.call(workersRoutes.list, {})).workers;
  const processOf = async (name: string): Promise<number> => {
    const all = await processesOf(join(home, name));
    const found = all.find(({ command }) => command.includes("server/src/worker/main.ts"));
    if (found === undefined) throw new Error(`the worker ${name} does not run`);
    return found.pid;
  };
  const workersOn: Team["workersOn"] = async (runName, type) => {
    const all = (await whenThere(workers)) ?? [];
    return all
      .filter(({ holds }) => holds.some((one) => one.type === type && one.run_name === runName))
      .map(({ name }) => name);
  };
  const resources = stack.move();
  return {
    platform,
    database,
    token: (await readFile(tokenFile, "utf8")).trim(),
    async join(names, url = platform.url) {
      for (const name of names) {
        const args = ["worker", "--platform", url, "--token-file", tokenFile, "--data", join(home, name)];
        joined.set(
          name,
          startOsmosis([...args, "--name", name, "--threads", "1"], { cwd: home, env: workerEnv }),
        );
      }
      await until(`${names.join(", ")} are here`, async () => {
        const known = (await workers()).map(({ name }) => name);
        return names.every((name) => known.includes(name));
      });
    },
    said: (name) => joined.get(name)?.stderr() ?? "",
    workersOn,
    holderOf: (runName) =>
      until(`a worker holds ${runName}`, async () => (await workersOn(runName, "run"))[0]),
    processOf,
    async lose(name) {
      const pid = await processOf(name);
      joined.get(name)?.kill("SIGKILL");
      process.kill(pid, "SIGKILL");
      await joined.get(name)?.ended;
    },
    async submit(label, { kind, lateMs, lines }) {
      const journal = join(home, `${kind}-${label}.jsonl`);
      const file = `configs/${kind === "train" ? "training" : "eval"}/${label}.toml`;
      const experiment = [
        "[experiment]",
        'rollout = "multiply-local-openai"',
        'entrypoint = "main.ts"',
        'dataset = "multiply"',
        ...(lines.some((line) => line.startsWith("model_path")) ? [] : ['model_path = "osmosis/tiny-agent"']),
      ];
      const variables = ["[env]", `EXECUTIONS = ${JSON.stringify(journal)}`, `LATE_MS = "${lateMs}"`];
      await writeFile(join(platform.workspace, file), [...experiment, ...lines, ...variables].join("\n"));
      const { resource } = await platform.answerOf(kind, "submit", file, "--yes");
      return { name: z.object({ name: z.string() }).parse(resource).name, journal };
    },
    async recordedBy(runName) {
      const rows = await database.db
        .selectFrom("run_rollouts")
        .innerJoin("runs", "runs.id", "run_rollouts.run_id")
        .select((eb) => ["run_rollouts.worker", eb.fn.countAll<string>().as("count")])
        .where("runs.name", "=", runName)
        .groupBy("run_rollouts.worker")
        .orderBy("run_rollouts.worker")
        .execute();
      return rows.map(({ worker, count }) => [worker, Number(count)] as const);
    },
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  };
}

/** The lines of a training configuration of so many steps. */
export function trainingLines(options: {
  readonly steps: number;
  readonly prompts: number;
  readonly samples: number;
  readonly lr?: number;
  /** Rows, and after how many steps; without it nothing is validated. */
  readonly validation?: { readonly rows: number; readonly interval: number };
  readonly advanced: readonly string[];
}): string[] {
  const { validation = { rows: 200, interval: 0 } } = options;
  return [
    "[training]",
    `lr = ${options.lr ?? 3e-4}`,
    `n_samples_per_prompt = ${options.samples}`,
    `rollout_batch_size = ${options.prompts}`,
    "max_prompt_length = 256",
    "max_response_length = 64",
    "[checkpoints]",
    `eval_interval = ${validation.interval}`,
    "[advanced]",
    `holdout_rows = ${validation.rows}`,
    "dynamic_sampling = false",
    "seed = 7",
    `max_steps = ${options.steps}`,
    ...options.advanced,
  ];
}

/** Whether somebody else has the share by now, or the holder of the run has taken it back. */
export async function handedOutAgain(
  { db }: Pick<Database, "db">,
  shareId: string,
  formerLease: string,
): Promise<boolean> {
  const share = await db
    .selectFrom("run_shares")
    .select(["withdrawn", "lease_token"])
    .where("id", "=", shareId)
    .executeTakeFirst();
  if (share === undefined || share.withdrawn) return true;
  return share.lease_token !== null && share.lease_token !== formerLease;
}

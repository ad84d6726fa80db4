import { mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { trainingRoutes, workersRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { openDatabase } from "../../packages/server/src/database/open.ts";
import { createPostgresDatabase } from "../../packages/server/src/database/testing.ts";
import { startOsmosis, type RunningCommand } from "./support/command.ts";
import { addExecutionJournal, executionsIn, keyOfRollout } from "./support/journal.ts";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { nothingLeft, processesOf } from "./support/processes.ts";
import { curvesOf, logOf, recordedRollouts, trainingEnd, whenThere } from "./support/runs.ts";
import { until } from "./support/until.ts";

/**
 * Four workers that `osmosis worker` holds, one server, one Postgres. They have the platform's address and a token,
 * nothing else.
 */

const LEASE_SECONDS = 3;
const STEPS = 5;
const PROMPTS = 4;
const SAMPLES = 4;
const TOTAL = STEPS * PROMPTS * SAMPLES;
const NAMES = ["ant", "bee", "cat", "dog"];

let opened: AsyncDisposableStack;
let platform: TestPlatform;
let home: string;
let databaseUrl: string;
const joined = new Map<string, RunningCommand>();

beforeAll(async () => {
  await using stack = new AsyncDisposableStack();
  home = await realpath(await mkdtemp(join(tmpdir(), "osmosis-e2e-workers-")));
  stack.defer(() => rm(home, { recursive: true, force: true, maxRetries: 5 }));
  databaseUrl = stack.use(await createPostgresDatabase()).url;
  platform = stack.use(
    await startTestPlatform({
      args: ["--no-worker"],
      env: { DATABASE_URL: databaseUrl, OSMOSIS_LEASE_SECONDS: String(LEASE_SECONDS) },
    }),
  );
  await addExecutionJournal(platform.workspace);
  await platform.push("Write a journal");
  await platform.answerOf("dataset", "upload", "data/multiply.jsonl");
  const token = join(home, "token");
  await platform.answerOf("worker", "token", "create", "--name", "four", "--save-to", token);
  stack.defer(async () => {
    for (const worker of joined.values()) worker.kill("SIGTERM");
    await Promise.all([...joined.values()].map(({ ended }) => ended));
    await nothingLeft(home);
  });
  const { DATABASE_URL: _database, ...env } = platform.env;
  for (const name of NAMES) {
    const data = join(home, name);
    const args = ["worker", "--platform", platform.url, "--token-file", token, "--data", data];
    joined.set(name, startOsmosis([...args, "--name", name, "--threads", "1"], { cwd: home, env }));
  }
  await until("four workers are here", async () => (await workers()).length === NAMES.length);
  opened = stack.move();
}, 180_000);

afterAll(async () => {
  await opened?.disposeAsync();
}, 60_000);

test("a run that is spread over four workers, one killed, one paused past its lease, and its holder lost twice, has the curve of one that a single worker did", async () => {
  const { client } = platform;
  const alone = await submit("alone", ["rollout_workers = 1"]);
  expect((await trainingEnd(client, alone.name)).training_run).toMatchObject({ status: "finished" });
  expect(await recordedBy(alone.name)).toHaveLength(1);

  const spread = await submit("spread", [`rollout_workers = ${NAMES.length}`]);
  const lost: string[] = [];
  const pauses: Promise<void>[] = [];
  const helping = () =>
    until("a worker helps", async () =>
      (await workersOn(spread.name, "share")).find((one) => !lost.includes(one)),
    );

  const killed = await helping();
  lost.push(killed);
  process.kill(await processOf(killed), "SIGKILL");
  const paused = await helping();
  lost.push(paused);
  pauses.push(pause(paused));
  await committed(spread.name, 2);

  const first = await holderOf(spread.name);
  process.kill(await processOf(first), "SIGKILL");
  await committed(spread.name, 3);
  const second = await holderOf(spread.name);
  pauses.push(pause(second));
  await until("another worker takes the run", async () => {
    const [holder] = await workersOn(spread.name, "run");
    return holder !== undefined && holder !== second;
  });
  await Promise.all(pauses);

  const { training_run: ended } = await trainingEnd(client, spread.name);
  expect(ended).toMatchObject({
    status: "finished",
    error: null,
    current_step: STEPS,
    examples_processed_count: TOTAL,
  });
  const curves = await curvesOf(client, alone.name);
  expect(curves["rollout/raw_reward"]).toHaveLength(STEPS);
  expect(await curvesOf(client, spread.name)).toEqual(curves);

  const recorded = await recordedRollouts(client, "train", spread.name);
  expect(recorded).toHaveLength(TOTAL);
  expect(new Set(recorded.map(keyOfRollout)).size).toBe(TOTAL);
  const counts = await recordedBy(spread.name);
  expect(counts.length).toBeGreaterThan(2);
  const attempts = (await logOf(client, "train", spread.name)).filter(({ message }) =>
    message.includes("takes the run"),
  );
  expect(attempts).toHaveLength(3);
  const executions = await executionsIn(spread.journal);
  // Only what was under way where a worker was lost was done again.
  expect(executions.length).toBeGreaterThanOrEqual(TOTAL);
  expect(executions.length).toBeLessThan(2 * TOTAL);
  evidence({ killed, paused, first, second, counts, executions: executions.length, total: TOTAL });
}, 240_000);

test("asynchronous training keeps its cap on the age of tokens, however many workers sample", async () => {
  const { client } = platform;
  const { name } = await submit("ahead", [
    `rollout_workers = ${NAMES.length}`,
    "asynchronous = true",
    "max_staleness = 1",
  ]);
  expect((await trainingEnd(client, name)).training_run).toMatchObject({ status: "finished", error: null });
  expect(await recordedRollouts(client, "train", name)).toHaveLength(TOTAL);
  const counts = await recordedBy(name);
  expect(counts.length).toBeGreaterThan(1);
  const ages = (await curvesOf(client, name))["rollout/staleness/max"] ?? [];
  expect(ages).toHaveLength(STEPS);
  for (const [, age] of ages) expect(age).toBeLessThanOrEqual(1);
  evidence({ asynchronous: counts, ages });
}, 120_000);

async function submit(
  label: string,
  advanced: readonly string[],
): Promise<{ name: string; journal: string }> {
  const journal = join(home, `${label}.jsonl`);
  const file = `configs/training/${label}.toml`;
  const lines = [
    "[experiment]",
    'rollout = "multiply-local-openai"',
    'entrypoint = "main.ts"',
    'model_path = "osmosis/tiny-agent"',
    'dataset = "multiply"',
    "[training]",
    "lr = 3e-4",
    `n_samples_per_prompt = ${SAMPLES}`,
    `rollout_batch_size = ${PROMPTS}`,
    "max_prompt_length = 256",
    "max_response_length = 64",
    "[checkpoints]",
    "eval_interval = 0",
    "[advanced]",
    'method = "full"',
    "holdout_rows = 200",
    "dynamic_sampling = false",
    "seed = 7",
    `max_steps = ${STEPS}`,
    ...advanced,
    "[env]",
    `EXECUTIONS = ${JSON.stringify(journal)}`,
    'LATE_MS = "300"',
  ];
  await writeFile(join(platform.workspace, file), lines.join("\n"));
  const { resource } = await platform.answerOf("train", "submit", file, "--yes");
  return { name: z.object({ name: z.string() }).parse(resource).name, journal };
}

async function workers() {
  return (await platform.client.call(workersRoutes.list, {})).workers;
}

/** Those that hold the run, or a share of it. */
async function workersOn(runName: string, type: "run" | "share"): Promise<string[]> {
  const all = (await whenThere(workers)) ?? [];
  return all
    .filter(({ holds }) => holds.some((one) => one.type === type && one.run_name === runName))
    .map(({ name }) => name);
}

const holderOf = (runName: string) =>
  until("a worker holds the run", async () => (await workersOn(runName, "run"))[0]);

async function processOf(name: string): Promise<number> {
  const all = await processesOf(join(home, name));
  const found = all.find(({ command }) => command.includes("server/src/worker/main.ts"));
  if (found === undefined) throw new Error(`the worker ${name} does not run`);
  return found.pid;
}

/** Stops a worker for longer than its lease. */
async function pause(name: string): Promise<void> {
  const pid = await processOf(name);
  process.kill(pid, "SIGSTOP");
  await sleep((LEASE_SECONDS + 2) * 1000);
  process.kill(pid, "SIGCONT");
}

async function committed(name: string, steps: number): Promise<void> {
  await until(`step ${steps} of ${name} is committed`, async () => {
    const detail = await platform.client.call(trainingRoutes.get, { params: { name } });
    const { status, current_step: step } = detail.training_run;
    if (status === "finished") throw new Error(`${name} went by too fast to be disturbed`);
    return (step ?? 0) >= steps;
  });
}

/** How many rollouts each worker recorded, as the server's database says. */
async function recordedBy(
  runName: string,
): Promise<readonly (readonly [worker: string | null, count: number])[]> {
  await using database = await openDatabase({ kind: "url", url: databaseUrl });
  const rows = await database.db
    .selectFrom("run_rollouts")
    .innerJoin("runs", "runs.id", "run_rollouts.run_id")
    .select((eb) => ["run_rollouts.worker", eb.fn.countAll<string>().as("count")])
    .where("runs.name", "=", runName)
    .groupBy("run_rollouts.worker")
    .orderBy("run_rollouts.worker")
    .execute();
  return rows.map(({ worker, count }) => [worker, Number(count)] as const);
}

/** Printed on request only: for whoever wants to see the numbers. */
function evidence(facts: Record<string, unknown>): void {
  if (process.env["OSMOSIS_TEST_EVIDENCE"] === "1") process.stdout.write(`${JSON.stringify(facts)}\n`);
}

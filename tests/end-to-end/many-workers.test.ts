import { setTimeout as sleep } from "node:timers/promises";
import { trainingRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { executionsIn, keyOfRollout } from "./support/journal.ts";
import { checkpointHashes, curvesOf, evalEnd, logOf, recordedRollouts, trainingEnd } from "./support/runs.ts";
import { startTeam, trainingLines, type Team } from "./support/team.ts";
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

let team: Team;

beforeAll(async () => {
  team = await startTeam({ OSMOSIS_LEASE_SECONDS: String(LEASE_SECONDS) });
  await team.join(NAMES);
}, 180_000);

afterAll(async () => {
  await team?.[Symbol.asyncDispose]();
}, 60_000);

test("a run that is spread over four workers, one killed, one paused past its lease, and its holder lost twice, has the curve of one that a single worker did", async () => {
  const { client } = team.platform;
  const alone = await submit("alone", ["rollout_workers = 1"]);
  expect((await trainingEnd(client, alone.name)).training_run).toMatchObject({ status: "finished" });
  expect(await team.recordedBy(alone.name)).toHaveLength(1);

  const spread = await submit("spread", [`rollout_workers = ${NAMES.length}`]);
  const lost: string[] = [];
  const pauses: Promise<void>[] = [];
  const helping = () =>
    until("a worker helps", async () =>
      (await team.workersOn(spread.name, "share")).find((one) => !lost.includes(one)),
    );

  const killed = await helping();
  lost.push(killed);
  process.kill(await team.processOf(killed), "SIGKILL");
  const paused = await helping();
  lost.push(paused);
  pauses.push(pause(paused));
  await committed(spread.name, 2);

  const first = await team.holderOf(spread.name);
  process.kill(await team.processOf(first), "SIGKILL");
  await committed(spread.name, 3);
  const second = await team.holderOf(spread.name);
  pauses.push(pause(second));
  await until("another worker takes the run", async () => {
    const [holder] = await team.workersOn(spread.name, "run");
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
  const counts = await team.recordedBy(spread.name);
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
  const { client } = team.platform;
  const { name } = await submit("ahead", [
    `rollout_workers = ${NAMES.length}`,
    "asynchronous = true",
    "max_staleness = 1",
  ]);
  expect((await trainingEnd(client, name)).training_run).toMatchObject({ status: "finished", error: null });
  expect(await recordedRollouts(client, "train", name)).toHaveLength(TOTAL);
  const counts = await team.recordedBy(name);
  expect(counts.length).toBeGreaterThan(1);
  const ages = (await curvesOf(client, name))["rollout/staleness/max"] ?? [];
  expect(ages).toHaveLength(STEPS);
  for (const [, age] of ages) expect(age).toBeLessThanOrEqual(1);
  evidence({ asynchronous: counts, ages });
}, 240_000);

test("adapters, validations and evaluations are spread, too: the curve, the adapter and each rollout are those of one worker", async () => {
  const { client } = team.platform;
  const [steps, prompts, samples] = [3, 4, 4];
  const train = async (label: string, workers: number) => {
    const advanced = ['method = "lora"', "lora_rank = 8", `rollout_workers = ${workers}`];
    const validation = { rows: 8, interval: 2 };
    // So much that each step samples from another model, and a stale adapter would show.
    const lines = trainingLines({ steps, prompts, samples, lr: 0.02, validation, advanced });
    const { name } = await team.submit(label, { kind: "train", lateMs: 200, lines });
    expect((await trainingEnd(client, name)).training_run).toMatchObject({ status: "finished", error: null });
    return name;
  };
  const alone = await train("lora-alone", 1);
  const spread = await train("lora-spread", NAMES.length);
  const counts = await team.recordedBy(spread);
  expect(counts.length).toBeGreaterThan(1);
  expect(await curvesOf(client, spread)).toEqual(await curvesOf(client, alone));
  expect(await outcomesOf("train", spread)).toEqual(await outcomesOf("train", alone));
  const adapterFiles = await checkpointHashes(client, alone);
  expect(Object.keys(adapterFiles)).toContain("adapter_model.safetensors");
  expect(await checkpointHashes(client, spread)).toEqual(adapterFiles);

  const { checkpoints } = await client.call(trainingRoutes.checkpoints, { params: { name: spread } });
  const adapter = checkpoints.at(-1)?.checkpoint_name;
  const evaluate = async (label: string, workers: number) => {
    const lines = [
      `model_path = ${JSON.stringify(adapter)}`,
      "[evaluation]",
      "limit = 32",
      "batch_size = 16",
      "[secrets]",
      "required = []",
      "[advanced]",
      "temperature = 1.0",
      "max_tokens = 64",
      "seed = 3",
      `rollout_workers = ${workers}`,
    ];
    const { name } = await team.submit(label, { kind: "eval", lateMs: 200, lines });
    const ended = await evalEnd(client, name);
    expect(ended.eval_run).toMatchObject({ status: "finished", error: null });
    return { name, results: ended.results };
  };
  const one = await evaluate("eval-alone", 1);
  const many = await evaluate("eval-spread", NAMES.length);
  const evaluated = await team.recordedBy(many.name);
  expect(evaluated.length).toBeGreaterThan(1);
  expect(await outcomesOf("eval", many.name)).toEqual(await outcomesOf("eval", one.name));
  expect(many.results).toEqual(one.results);
  evidence({
    lora: counts,
    adapter: adapterFiles,
    evaluation: evaluated,
    pass_rate: many.results?.pass_rate,
  });
}, 240_000);

function submit(label: string, advanced: readonly string[]) {
  const lines = trainingLines({
    steps: STEPS,
    prompts: PROMPTS,
    samples: SAMPLES,
    advanced: ['method = "full"', ...advanced],
  });
  return team.submit(label, { kind: "train", lateMs: 300, lines });
}

/** What each rollout of a run came to, whoever did it. */
async function outcomesOf(kind: "train" | "eval", name: string) {
  const rollouts = await recordedRollouts(team.platform.client, kind, name);
  return rollouts
    .map((one) => [keyOfRollout(one), one.outcome, one.reward, one.completion_tokens] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
}

/** Stops a worker for longer than its lease. */
async function pause(name: string): Promise<void> {
  const pid = await team.processOf(name);
  process.kill(pid, "SIGSTOP");
  await sleep((LEASE_SECONDS + 2) * 1000);
  process.kill(pid, "SIGCONT");
}

async function committed(name: string, steps: number): Promise<void> {
  await until(`step ${steps} of ${name} is committed`, async () => {
    const detail = await team.platform.client.call(trainingRoutes.get, { params: { name } });
    const { status, current_step: step } = detail.training_run;
    if (status === "finished") throw new Error(`${name} went by too fast to be disturbed`);
    return (step ?? 0) >= steps;
  });
}

/** Printed on request only: for whoever wants to see the numbers. */
function evidence(facts: Record<string, unknown>): void {
  if (process.env["OSMOSIS_TEST_EVIDENCE"] === "1") process.stdout.write(`${JSON.stringify(facts)}\n`);
}

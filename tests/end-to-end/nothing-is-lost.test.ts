import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { addExecutionJournal, executionsIn, keyOfRollout, repeatedWork } from "./support/journal.ts";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { nothingLeft, processesOf } from "./support/processes.ts";
import {
  checkpointHashes,
  curvesOf,
  evalEnd,
  logOf,
  recordedRollouts,
  trainingEnd,
  whenThere,
} from "./support/runs.ts";
import { until } from "./support/until.ts";

/**
 * SIGKILL to each process of the platform in the middle of runs. The rollouts write what they execute into a journal, so
 * that the tests see what was done, not what was told.
 */

const STEPS = 6;
const PROMPTS = 4;
const SAMPLES = 4;
const EVAL_ROWS = 60;

let platform: TestPlatform;

beforeAll(async () => {
  platform = await startTestPlatform();
  await addExecutionJournal(platform.workspace);
  await platform.push("Write a journal");
  await platform.answerOf("dataset", "upload", "data/multiply.jsonl");
}, 180_000);

afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
});

type Submitted = { readonly name: string; readonly journal: string };

async function submitTraining(label: string): Promise<Submitted> {
  return submit("train", label, [
    "[training]",
    "lr = 3e-4",
    `n_samples_per_prompt = ${SAMPLES}`,
    `rollout_batch_size = ${PROMPTS}`,
    "max_prompt_length = 256",
    "max_response_length = 64",
    "agent_workflow_timeout_s = 60",
    "grader_timeout_s = 10",
    "[checkpoints]",
    "eval_interval = 0",
    "[advanced]",
    'method = "full"',
    "holdout_rows = 200",
    // The rollouts of a step are counted below.
    "dynamic_sampling = false",
    "seed = 7",
    `max_steps = ${STEPS}`,
  ]);
}

async function submitEvaluation(label: string): Promise<Submitted> {
  return submit("eval", label, [
    "[evaluation]",
    `limit = ${EVAL_ROWS}`,
    "batch_size = 8",
    "agent_workflow_timeout_s = 60",
    "grader_timeout_s = 10",
    "[secrets]",
    "required = []",
    "[advanced]",
    "temperature = 1.0",
    "max_tokens = 64",
    "seed = 3",
  ]);
}

async function submit(kind: "train" | "eval", label: string, lines: readonly string[]): Promise<Submitted> {
  const journal = join(platform.workspace, `../${kind}-${label}.jsonl`);
  const file = `configs/${kind === "train" ? "training" : "eval"}/${label}.toml`;
  const experiment = [
    "[experiment]",
    'rollout = "multiply-local-openai"',
    'entrypoint = "main.ts"',
    'model_path = "osmosis/tiny-agent"',
    'dataset = "multiply"',
  ];
  const env = ["[env]", `EXECUTIONS = ${JSON.stringify(journal)}`, 'LATE_MS = "1000"'];
  await writeFile(join(platform.workspace, file), [...experiment, ...lines, ...env].join("\n"));
  const { resource } = await platform.answerOf(kind, "submit", file, "--yes");
  // The command's own envelope.
  return { name: (resource as { name: string }).name, journal };
}

/** Waits until a part of the step is recorded: some rollouts, and not all. */
async function inTheMiddle(
  kind: "train" | "eval",
  name: string,
  { step, atLeast, total }: { step: number; atLeast: number; total: number },
): Promise<void> {
  await until(
    `${name} is in the middle of step ${step}`,
    async () => {
      const recorded = await whenThere(() => recordedRollouts(platform.client, kind, name, step));
      if (recorded !== undefined && recorded.length === total) {
        throw new Error(`step ${step} of ${name} went by too fast to be interrupted`);
      }
      return recorded !== undefined && recorded.length >= atLeast;
    },
    { pauseMs: 20 },
  );
}

async function expectWorkDoneOnce(kind: "train" | "eval", { name, journal }: Submitted, total: number) {
  const executions = await executionsIn(journal);
  const recorded = await recordedRollouts(platform.client, kind, name);
  // Each rollout is recorded once.
  expect(recorded).toHaveLength(total);
  expect(new Set(recorded.map(keyOfRollout)).size).toBe(total);
  expect(repeatedWork(executions, recorded)).toEqual([]);
  return { executions: executions.length, recorded };
}

const outcomeOf = (rollouts: Awaited<ReturnType<typeof recordedRollouts>>) =>
  rollouts
    .map(
      (rollout) =>
        [keyOfRollout(rollout), rollout.outcome, rollout.reward, rollout.completion_tokens] as const,
    )
    .toSorted(([a], [b]) => (a < b ? -1 : 1));

describe("a training run", () => {
  test("goes on after SIGKILL to its worker, to the server and to all of them, with the curve of an undisturbed one", async () => {
    const { client } = platform;
    const total = STEPS * PROMPTS * SAMPLES;
    const calm = await submitTraining("calm");
    expect((await trainingEnd(client, calm.name)).training_run).toMatchObject({
      status: "finished",
      error: null,
    });
    const undisturbed = await expectWorkDoneOnce("train", calm, total);
    expect(undisturbed.executions).toBe(total);

    const shaken = await submitTraining("shaken");
    const middle = (step: number) =>
      inTheMiddle("train", shaken.name, { step, atLeast: 3, total: PROMPTS * SAMPLES });

    await middle(2);
    const worker = await platform.kill("worker");
    const heldByWorker = (await processesOf(platform.data)).filter(({ parent }) => parent === worker.pid);

    await middle(4);
    const survivor = await platform.processOf("worker");
    await platform.kill("server");

    await middle(5);
    // A worker sits out a restart of the server.
    expect((await platform.processOf("worker"))?.pid).toBe(survivor?.pid);
    await platform.kill("up");
    await nothingLeft(platform.data);
    await platform.startAgain();

    expect((await trainingEnd(client, shaken.name)).training_run).toMatchObject({
      status: "finished",
      error: null,
      current_step: STEPS,
      examples_processed_count: total,
    });
    const disturbed = await expectWorkDoneOnce("train", shaken, total);
    // Only what was under way at a kill was done again.
    expect(disturbed.executions).toBeGreaterThan(total);
    expect(disturbed.executions).toBeLessThan(total + 2 * PROMPTS * SAMPLES);
    expect(outcomeOf(disturbed.recorded)).toEqual(outcomeOf(undisturbed.recorded));

    const curves = await curvesOf(client, calm.name);
    expect(curves["rollout/raw_reward"]).toHaveLength(STEPS);
    expect(await curvesOf(client, shaken.name)).toEqual(curves);
    const hashes = await checkpointHashes(client, calm.name);
    expect(Object.keys(hashes)).toContain("model.safetensors");
    expect(await checkpointHashes(client, shaken.name)).toEqual(hashes);

    // The killed worker's processes did not outlive it.
    const alive = (await processesOf(platform.data)).map(({ pid }) => pid);
    expect(heldByWorker.filter(({ pid }) => alive.includes(pid))).toEqual([]);
    const attempts = (await logOf(client, "train", shaken.name)).filter(({ message }) =>
      message.includes("takes the run"),
    );
    expect(attempts.map(({ message }) => /attempt \d/.exec(message)?.[0])).toEqual([
      "attempt 1",
      "attempt 2",
      "attempt 3",
    ]);
    evidence("training", {
      rewards_undisturbed: curves["rollout/raw_reward"],
      rewards_after_three_kills: (await curvesOf(client, shaken.name))["rollout/raw_reward"],
      metrics_compared: Object.keys(curves).length,
      checkpoint: hashes["model.safetensors"],
      rollouts: total,
      executions_undisturbed: undisturbed.executions,
      executions_after_three_kills: disturbed.executions,
    });
  }, 300_000);
});

describe("an evaluation run", () => {
  test("goes on after SIGKILL to its worker, to the server and to all of them, with the results of an undisturbed one", async () => {
    const { client } = platform;
    const calm = await submitEvaluation("calm");
    const expected = await evalEnd(client, calm.name);
    expect(expected.eval_run).toMatchObject({ status: "finished", error: null });
    const undisturbed = await expectWorkDoneOnce("eval", calm, EVAL_ROWS);
    expect(undisturbed.executions).toBe(EVAL_ROWS);

    const shaken = await submitEvaluation("shaken");
    const recordedAtLeast = (atLeast: number) =>
      inTheMiddle("eval", shaken.name, { step: 0, atLeast, total: EVAL_ROWS });
    await recordedAtLeast(8);
    await platform.kill("worker");
    await recordedAtLeast(22);
    await platform.kill("server");
    await recordedAtLeast(36);
    await platform.kill("up");
    await nothingLeft(platform.data);
    await platform.startAgain();

    const ended = await evalEnd(client, shaken.name);
    expect(ended.eval_run).toMatchObject({ status: "finished", error: null });
    const disturbed = await expectWorkDoneOnce("eval", shaken, EVAL_ROWS);
    expect(disturbed.executions).toBeLessThanOrEqual(EVAL_ROWS + 2 * 8);
    expect(outcomeOf(disturbed.recorded)).toEqual(outcomeOf(undisturbed.recorded));
    expect(ended.results).toEqual(expected.results);
    evidence("evaluation", {
      rollouts: EVAL_ROWS,
      executions_after_three_kills: disturbed.executions,
      pass_rate: [expected.results?.pass_rate, ended.results?.pass_rate],
    });
  }, 300_000);
});

test("Ctrl-C ends the platform, and no process is left", async () => {
  expect(await platform.stop()).toMatchObject({ code: 130, signal: null });
});

/** Printed on request only: for whoever wants to see the numbers. */
function evidence(what: string, facts: Record<string, unknown>): void {
  if (process.env["OSMOSIS_TEST_EVIDENCE"] === "1") {
    process.stdout.write(`${what}: ${JSON.stringify(facts, undefined, 1)}\n`);
  }
}

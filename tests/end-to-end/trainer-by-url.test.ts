import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { curvesOf, evalEnd, logOf, recordedRollouts, trainingEnd } from "./support/runs.ts";
import { mintTrainerKey } from "./support/trainer-key.ts";
import { until } from "./support/until.ts";

/** Two platforms: the runs of one train at the other. */

let trainer: TestPlatform;
let platform: TestPlatform;
let key: string;
/** What a run of the engine gives, with the same seeds. */
let embedded: string;
const opened = new AsyncDisposableStack();
beforeAll(async () => {
  trainer = opened.use(await startTestPlatform());
  const folder = await mkdtemp(join(tmpdir(), "osmosis-e2e-key-"));
  opened.defer(() => rm(folder, { recursive: true }));
  key = await mintTrainerKey(trainer);
  await writeFile(join(folder, "key"), `${key}\n`);
  platform = opened.use(
    await startTestPlatform({
      env: { OSMOSIS_TRAINER_URL: trainer.url, OSMOSIS_TRAINER_API_KEY_FILE: join(folder, "key") },
    }),
  );
  await platform.answerOf("dataset", "upload", "data/multiply.jsonl");
  embedded = await train("here", ['trainer = "embedded"']);
});
afterAll(() => opened.disposeAsync());

test("a platform trains at another one by its address, survives a killed worker, and keeps a checkpoint that it can serve", async () => {
  await trainingEnd(platform.client, embedded);
  const there = await train("there", []);
  await until("a step is committed", async () => ((await rewardsOf(there)) ?? []).length >= 1);
  await platform.kill("worker");
  for (const name of [there, embedded]) await finished(name);
  // The same model, the same seeds, the same gradient: the same rewards.
  expect(await rewardsOf(there)).toEqual(await rewardsOf(embedded));

  const log = JSON.stringify(await logOf(platform.client, "train", there));
  expect(log).toContain(`Training at ${trainer.url}`);
  expect(log).not.toContain(key);
  await evaluate(platform, "after", checkpointIn(log));
});

test("a model whose weights are at the trainer alone is measured and trained there, and its checkpoint, too", async () => {
  const folder = fileURLToPath(new URL("../../packages/engine/models/tiny-agent", import.meta.url));
  const registered = await platform.answerOf(
    "model",
    "import",
    folder,
    "--name",
    WEIGHTLESS,
    "--without-weights",
  );
  expect(registered).toMatchObject({ resource: { parameters: null } });

  await trainer.answerOf("dataset", "upload", "data/multiply.jsonl");
  const measured = await evaluate(platform, "before", WEIGHTLESS, [
    `trainer = "${trainer.url}"`,
    ITS_NAME_THERE,
  ]);
  expect(measured).toEqual(await evaluate(trainer, "before", "osmosis/tiny-agent"));

  const run = await train("weightless", [ITS_NAME_THERE], WEIGHTLESS);
  await finished(run);
  await finished(embedded);
  expect(await rewardsOf(run)).toEqual(await rewardsOf(embedded));

  const checkpoint = checkpointIn(JSON.stringify(await logOf(platform.client, "train", run)));
  await evaluate(platform, "trained", checkpoint);
  const merged = await platform.osmosis("model", "download", checkpoint, "--merge");
  expect(merged).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`${WEIGHTLESS} has no weights here`),
  });
  const { resource } = await platform.answerOf("model", "download", checkpoint, "-o", "../checkpoint");
  const names = z.object({ files: z.array(z.object({ name: z.string() })) }).parse(resource).files;
  expect(names.map(({ name }) => name)).toEqual(
    expect.arrayContaining(["adapter_model.safetensors", "remote-weights.json"]),
  );
  const replayed = await platform.osmosis("train", "replay", run, "--step", "1");
  expect(replayed).toMatchObject({ code: 1, stderr: expect.stringContaining("by a trainer by URL") });
  const refused = await platform.osmosis(
    ...(await submission("engine", ['trainer = "embedded"'], WEIGHTLESS)),
  );
  expect(refused).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`is "embedded", but ${WEIGHTLESS} has no weights here`),
  });
});

const WEIGHTLESS = "lab/tiny";
const ITS_NAME_THERE = 'trainer_model = "osmosis/tiny-agent"';

const EXPERIMENT = [
  "[experiment]",
  'rollout = "multiply-local-openai"',
  'entrypoint = "main.ts"',
  'dataset = "multiply"',
];

/** Submits a training run of three steps; answers its name. */
async function train(...run: Parameters<typeof submission>): Promise<string> {
  return nameIn(await platform.answerOf(...(await submission(...run))));
}

/** Writes the configuration of a training run, and answers the command that submits it. */
async function submission(
  label: string,
  advanced: readonly string[],
  model = "osmosis/tiny-agent",
): Promise<string[]> {
  const file = `configs/training/${label}.toml`;
  const lines = [
    ...EXPERIMENT,
    `model_path = "${model}"`,
    "[training]",
    "lr = 2e-3",
    "n_samples_per_prompt = 4",
    "rollout_batch_size = 4",
    "max_prompt_length = 256",
    "max_response_length = 64",
    "[checkpoints]",
    "eval_interval = 0",
    "[advanced]",
    "holdout_rows = 200",
    "seed = 7",
    "max_steps = 3",
    "dynamic_sampling = false",
    ...advanced,
  ];
  await writeFile(join(platform.workspace, file), lines.join("\n"));
  return ["train", "submit", file, "--yes"];
}

async function finished(name: string): Promise<void> {
  const { training_run } = await trainingEnd(platform.client, name);
  expect(training_run).toMatchObject({ status: "finished", error: null });
}

/** Measures a model to the end; answers the reward of each row. */
async function evaluate(
  { workspace, client, answerOf }: TestPlatform,
  label: string,
  model: string,
  advanced: readonly string[] = [],
): Promise<(readonly [row: number, reward: number | null])[]> {
  const file = `configs/eval/${label}.toml`;
  const lines = [
    ...EXPERIMENT,
    `model_path = "${model}"`,
    "[evaluation]",
    "limit = 16",
    "[secrets]",
    "required = []",
    "[advanced]",
    ...advanced,
  ];
  await writeFile(join(workspace, file), lines.join("\n"));
  const name = nameIn(await answerOf("eval", "submit", file, "--yes"));
  expect((await evalEnd(client, name)).eval_run).toMatchObject({ status: "finished", error: null });
  const rollouts = await recordedRollouts(client, "eval", name);
  return rollouts
    .map(({ row_index: row, reward }) => [row, reward] as const)
    .toSorted(([one], [other]) => one - other);
}

function nameIn({ resource }: Record<string, unknown>): string {
  return z.object({ name: z.string() }).parse(resource).name;
}

function checkpointIn(log: string): string {
  return /Kept checkpoint ([\w.-]+)/.exec(log)?.[1] ?? "";
}

async function rewardsOf(name: string) {
  return (await curvesOf(platform.client, name))["rollout/raw_reward"];
}

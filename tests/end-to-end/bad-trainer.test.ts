import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { secretRoutes, trainingRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { CHECKOUT } from "./support/command.ts";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { curvesOf, logOf, recordedRollouts, trainingEnd } from "./support/runs.ts";
import { startDoor, type Door } from "./support/trainer-door.ts";
import { mintTrainerKey } from "./support/trainer-key.ts";
import { until } from "./support/until.ts";

/**
 * Trainers by URL that are no good, through the whole platform: each ends in a message with its place and its remedy and
 * in a final state that is true, and what was done before it stays.
 */

let trainer: TestPlatform;
let platform: TestPlatform;
let door: Door;
let key: string;
let silent: Door;
let html: Door;
let broken: Door;
beforeAll(async () => {
  [trainer, platform] = await Promise.all([
    startTestPlatform(),
    startTestPlatform({ env: { OSMOSIS_TRAINER_PATIENCE_S: "3" } }),
  ]);
  door = await startDoor(trainer.url);
  silent = await startDoor(trainer.url, "silent");
  html = await startDoor(trainer.url, "html");
  broken = await startDoor(trainer.url, "broken");
  key = await mintTrainerKey(trainer);
  await equip(platform);
}, 180_000);
/** Gives a platform what its runs need. */
async function equip(one: TestPlatform): Promise<void> {
  await one.answerOf("dataset", "upload", "data/multiply.jsonl");
  for (const [name, value] of Object.entries({ TRAINER_KEY: key, WRONG_KEY: "tml-wrong" })) {
    await one.client.call(secretRoutes.set, { body: { name, value, scope: "user" } });
  }
}

afterAll(async () => {
  for (const one of [door, silent, html, broken]) {
    await one?.[Symbol.asyncDispose]();
    expect(one?.strange).toEqual([]);
  }
  await platform?.[Symbol.asyncDispose]();
  await trainer?.[Symbol.asyncDispose]();
});

type Settings = {
  readonly url: string;
  readonly key?: string;
  readonly steps?: number;
  readonly model?: string;
  readonly advanced?: readonly string[];
};

/** Submits a small run, and answers its name. */
async function submit(label: string, settings: Settings, on = platform): Promise<string> {
  const {
    url,
    key: secret = "TRAINER_KEY",
    steps = 1,
    model = "osmosis/tiny-agent",
    advanced = [],
  } = settings;
  const file = `configs/training/${label}.toml`;
  const lines = [
    "[experiment]",
    'rollout = "multiply-local-openai"',
    'entrypoint = "main.ts"',
    'dataset = "multiply"',
    `model_path = "${model}"`,
    "[training]",
    "lr = 2e-3",
    "n_samples_per_prompt = 4",
    "rollout_batch_size = 2",
    "max_prompt_length = 256",
    "max_response_length = 48",
    "[checkpoints]",
    "eval_interval = 0",
    "checkpoint_save_freq = 1",
    "[secrets]",
    `required = ["${secret}"]`,
    "[advanced]",
    `trainer = "${url}"`,
    `trainer_api_key = "${secret}"`,
    'trainer_reduction = "sum"',
    "holdout_rows = 0",
    "seed = 7",
    `max_steps = ${steps}`,
    "dynamic_sampling = false",
    ...advanced,
  ];
  await writeFile(join(on.workspace, file), lines.join("\n"));
  const { resource } = await on.answerOf("train", "submit", file, "--yes");
  return z.object({ name: z.string() }).parse(resource).name;
}

/** How a run ended, what it has kept, and its log as one text. */
async function endOf(name: string, { client } = platform) {
  const { training_run: run } = await trainingEnd(client, name);
  const { checkpoints } = await client.call(trainingRoutes.checkpoints, { params: { name } });
  const outcomes = (await recordedRollouts(client, "train", name)).map(({ outcome }) => outcome);
  const rewards = (await curvesOf(client, name))["rollout/raw_reward"] ?? [];
  const log = JSON.stringify(await logOf(client, "train", name));
  return { ...run, rewards, log, outcomes, kept: checkpoints.map(({ checkpoint_name: one }) => one) };
}

const stepsOf = async (name: string, { client } = platform) =>
  ((await curvesOf(client, name))["rollout/raw_reward"] ?? []).length;

describe("a trainer", () => {
  let closed: string;
  beforeAll(async () => {
    // Nobody listens at the address of a server that has ended.
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closed = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await new Promise((resolve) => server.close(resolve));
  });

  test.each([
    [
      "where nobody listens",
      (): string => closed,
      "TRAINER_KEY",
      /The trainer at \S+ fails: .*ECONNREFUSED.* \(asked \d+ times\)/,
      "whether it runs",
    ],
    [
      "whose name nobody knows",
      (): string => "http://trainer.invalid",
      "TRAINER_KEY",
      /The trainer at http:\/\/trainer\.invalid fails: .*trainer\.invalid/,
      "Check the address",
    ],
    [
      "that refuses the key",
      (): string => door.url,
      "WRONG_KEY",
      /The trainer refused \S+ \(401\)/,
      "Check the API key",
    ],
    [
      "that never answers",
      (): string => silent.url,
      "TRAINER_KEY",
      /fails: no answer within 3 s/,
      "whether it runs",
    ],
    [
      "that is another web server",
      (): string => html.url,
      "TRAINER_KEY",
      /answered \S+ with something else than the wire says/,
      "Check the address",
    ],
    [
      "that is broken",
      (): string => broken.url,
      "TRAINER_KEY",
      /answers 500: out of memory \(asked \d+ times\)/,
      "its log",
    ],
  ] as const)("%s ends the run with the reason", async (label, url, key, reason, hint) => {
    const name = await submit(label.replaceAll(" ", "-"), { url: url(), key });
    const end = await endOf(name);
    expect(end).toMatchObject({
      status: "failed",
      error: expect.stringMatching(reason),
      kept: [],
      outcomes: [],
    });
    expect(end.error).toContain(hint);
    expect(end.completed_at).not.toBeNull();
    expect(end.log).not.toContain("tml-wrong");
  });
});

test("a trainer that refuses to sample ends the run with its words, and no agent is blamed for it", async () => {
  door.mood = "speechless";
  const end = await endOf(await submit("refuses-to-sample", { url: door.url }));
  door.mood = "open";
  expect(end).toMatchObject({
    status: "failed",
    error: expect.stringMatching(
      /^None of the 8 rollouts has a reward\. Most often \(8\) they ended with provider: .*refused \/asample \(400\): sampling is switched off/,
    ),
    outcomes: Array(8).fill("provider"),
    rewards: [],
    kept: [],
  });
}, 120_000);

test("a trainer that goes away in the middle of a run ends it with the reason; what it has is kept, and the next run goes on from it", async () => {
  const name = await submit("goes-away", { url: door.url, steps: 40 });
  await until("two steps are committed", async () => (await stepsOf(name)) >= 2);
  door.mood = "shut";
  const end = await endOf(name);
  door.mood = "open";
  expect(end).toMatchObject({
    status: "failed",
    error: expect.stringContaining(`The trainer at ${door.url} fails`),
  });
  expect(end.log).toMatch(/The trainer at \S+ fails: [^"]*; it is asked again for \d+ s/);
  expect(end.rewards.length).toBeGreaterThanOrEqual(2);
  expect(end.kept).toContain(`${name}-step-2`);
  // Nobody blames a rollout for it.
  expect(end.outcomes.filter((outcome) => outcome !== "ok" && outcome !== "truncated")).toEqual([]);

  const next = await endOf(await submit("goes-on", { url: door.url, model: `${name}-step-2` }));
  expect(next).toMatchObject({ status: "finished", error: null });
  expect(next.rewards).toHaveLength(1);
}, 120_000);

test("a trainer that was started again and knows nothing of the model gets its last state, and the curve is that of an undisturbed run", async () => {
  // Starting a server again takes longer than the other platform waits.
  await using patient = await startTestPlatform();
  await equip(patient);
  const undisturbed = await submit("undisturbed", { url: door.url, steps: 4 }, patient);
  expect(await endOf(undisturbed, patient)).toMatchObject({ status: "finished", error: null });
  const name = await submit("loses-the-model", { url: door.url, steps: 4 }, patient);
  await until("a step is committed", async () => (await stepsOf(name, patient)) >= 1);
  await trainer.kill("server");
  const end = await endOf(name, patient);
  expect(end).toMatchObject({ status: "finished", error: null });
  expect(end.log).toContain("The trainer has lost the model");
  expect(end.log).toMatch(/Going on after step [123] of 4/);
  expect(end.rewards).toEqual((await endOf(undisturbed, patient)).rewards);
}, 240_000);

test("a trainer whose model has another vocabulary ends the run before anything is sampled", async () => {
  await trainer.answerOf(
    "model",
    "import",
    join(CHECKOUT, "packages/engine/fixtures/gguf/llama.gguf"),
    "--name",
    "other/small",
  );
  const name = await submit("other-vocabulary", {
    url: door.url,
    advanced: ['trainer_model = "other/small"'],
  });
  const end = await endOf(name);
  expect(end).toMatchObject({
    status: "failed",
    error: expect.stringMatching(/other\/small knows 407 tokens, the model here 431: .*trainer_model/),
    rewards: [],
    kept: [],
  });
}, 120_000);

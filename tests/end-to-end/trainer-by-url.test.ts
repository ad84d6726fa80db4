import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { curvesOf, evalEnd, logOf, trainingEnd } from "./support/runs.ts";
import { mintTrainerKey } from "./support/trainer-key.ts";
import { until } from "./support/until.ts";

/** Two platforms: the runs of one train at the other. */

test("a platform trains at another one by its address, survives a killed worker, and keeps a checkpoint that it can serve", async () => {
  await using trainer = await startTestPlatform();
  const folder = await mkdtemp(join(tmpdir(), "osmosis-e2e-key-"));
  try {
    const key = await mintTrainerKey(trainer);
    await writeFile(join(folder, "key"), `${key}\n`);
    await using platform = await startTestPlatform({
      env: { OSMOSIS_TRAINER_URL: trainer.url, OSMOSIS_TRAINER_API_KEY_FILE: join(folder, "key") },
    });
    await platform.answerOf("dataset", "upload", "data/multiply.jsonl");

    const there = await submit(platform, "there", []);
    await until("a step is committed", async () => ((await rewardsOf(platform, there)) ?? []).length >= 1);
    await platform.kill("worker");
    const here = await submit(platform, "here", ['trainer = "embedded"']);
    for (const name of [there, here]) {
      expect((await trainingEnd(platform.client, name)).training_run).toMatchObject({
        status: "finished",
        error: null,
      });
    }
    // The same model, the same seeds, the same gradient: the same rewards.
    expect(await rewardsOf(platform, there)).toEqual(await rewardsOf(platform, here));

    const log = JSON.stringify(await logOf(platform.client, "train", there));
    expect(log).toContain(`Training at ${trainer.url}`);
    expect(log).not.toContain(key);
    const checkpoint = /Kept checkpoint ([\w.-]+)/.exec(log)?.[1] ?? "";
    await writeFile(
      join(platform.workspace, "configs/eval/after.toml"),
      [
        ...EXPERIMENT,
        `model_path = "${checkpoint}"`,
        "[evaluation]",
        "limit = 8",
        "[secrets]",
        "required = []",
      ].join("\n"),
    );
    const { resource } = await platform.answerOf("eval", "submit", "configs/eval/after.toml", "--yes");
    const { name } = z.object({ name: z.string() }).parse(resource);
    expect((await evalEnd(platform.client, name)).eval_run).toMatchObject({ status: "finished" });
  } finally {
    await rm(folder, { recursive: true });
  }
}, 280_000);

const EXPERIMENT = [
  "[experiment]",
  'rollout = "multiply-local-openai"',
  'entrypoint = "main.ts"',
  'dataset = "multiply"',
];

async function submit(platform: TestPlatform, label: string, advanced: readonly string[]): Promise<string> {
  const file = `configs/training/${label}.toml`;
  const lines = [
    ...EXPERIMENT,
    'model_path = "osmosis/tiny-agent"',
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
  const { resource } = await platform.answerOf("train", "submit", file, "--yes");
  return z.object({ name: z.string() }).parse(resource).name;
}

async function rewardsOf(platform: TestPlatform, name: string) {
  return (await curvesOf(platform.client, name))["rollout/raw_reward"];
}

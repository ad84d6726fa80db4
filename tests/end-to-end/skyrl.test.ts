import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readSafetensors, writeSafetensors } from "@osmosis/engine";
import { modelRoutes, secretRoutes } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { z } from "zod";
import { startSkyrl } from "../../packages/server/src/features/tinker/testing-skyrl.ts";
import { CHECKOUT } from "./support/command.ts";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { curvesOf, evalEnd, logOf, trainingEnd } from "./support/runs.ts";

/** A Python that has the package `skyrl`, with its extras `jax` and `tinker`. */
const PYTHON = process.env["OSMOSIS_TEST_SKYRL_PYTHON"] ?? "";
const hasSkyrl = existsSync(PYTHON);
if (!hasSkyrl) {
  process.stderr.write(
    "Training a whole run at SkyRL is not tested: set OSMOSIS_TEST_SKYRL_PYTHON to a Python that has the package skyrl.\n",
  );
}

const MODEL = join(CHECKOUT, "packages/engine/models/tiny-agent");
const STEPS = 8;
const KEY = "tml-not-looked-at-but-secret";

test.skipIf(!hasSkyrl)(
  "a run of the platform trains the shipped agent at a SkyRL server: rewards rise, and the checkpoint is served here",
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "osmosis-e2e-skyrl-"));
    try {
      const model = await inFullPrecision(MODEL, join(folder, "tiny-agent"));
      await using skyrl = await startSkyrl(PYTHON, model);
      await using platform = await startTestPlatform();
      const { client } = platform;
      await platform.answerOf("dataset", "upload", "data/multiply.jsonl");
      await client.call(secretRoutes.set, { body: { name: "SKYRL_KEY", value: KEY, scope: "user" } });

      const name = await submit(platform, "train", trainingConfig(skyrl.url, model));
      const { training_run: run } = await trainingEnd(client, name, { timeoutMs: 1_200_000 });
      expect(run).toMatchObject({ status: "finished", error: null });
      const curves = await curvesOf(client, name);
      const rewards = (curves["rollout/raw_reward"] ?? []).map(([, value]) => value);
      process.stderr.write(`skyrl: ${rewards.map((reward) => reward.toFixed(2)).join(" ")}\n`);
      expect(rewards).toHaveLength(STEPS);
      expect(mean(rewards.slice(-3))).toBeGreaterThan((rewards[0] ?? 1) + 0.2);
      // What SkyRL sampled with is what it trains: nothing is corrected away.
      for (const [step, difference] of curves["train/train_rollout_logprob_abs_diff_max"] ?? [])
        expect(difference, `step ${step}`).toBeLessThan(1e-3);

      const log = JSON.stringify(await logOf(client, "train", name));
      expect(log).toContain(`Training at ${skyrl.url}`);
      expect(log).not.toContain(KEY);
      const checkpoint = `${name}-step-${STEPS}`;
      const { files } = await client.call(modelRoutes.get, { params: { name: checkpoint } });
      expect(files.map((file) => file.name)).toContain("adapter_model.safetensors");
      const evaluation = await submit(platform, "eval", evaluationConfig(checkpoint));
      const { eval_run: measured } = await evalEnd(client, evaluation);
      expect(measured).toMatchObject({ status: "finished", results: { graded: 24 } });
      process.stderr.write(`skyrl: its checkpoint has ${measured.results?.score} here, greedily\n`);
      expect(measured.results?.score).toBeGreaterThan(rewards[0] ?? 1);
    } finally {
      await rm(folder, { recursive: true });
    }
  },
  1_500_000,
);

/** JAX multiplies nothing smaller than 32 bits on a CPU: the same values in twice the bytes. */
async function inFullPrecision(from: string, to: string): Promise<string> {
  await mkdir(to);
  for (const name of await readdir(from)) await copyFile(join(from, name), join(to, name));
  const config = await readFile(join(from, "config.json"), "utf8");
  await writeFile(join(to, "config.json"), config.replace('"float16"', '"float32"'));
  await writeSafetensors(
    join(to, "model.safetensors"),
    await readSafetensors(join(from, "model.safetensors")),
  );
  return to;
}

const EXPERIMENT = [
  "[experiment]",
  'rollout = "multiply-local-openai"',
  'entrypoint = "main.ts"',
  'dataset = "multiply"',
];

const trainingConfig = (url: string, model: string): string[] => [
  ...EXPERIMENT,
  'model_path = "osmosis/tiny-agent"',
  "[training]",
  "lr = 2e-3",
  "n_samples_per_prompt = 8",
  "rollout_batch_size = 8",
  "max_prompt_length = 256",
  "max_response_length = 64",
  "[checkpoints]",
  "eval_interval = 0",
  "[secrets]",
  'required = ["SKYRL_KEY"]',
  "[advanced]",
  "holdout_rows = 200",
  "seed = 7",
  `max_steps = ${STEPS}`,
  "lora_rank = 8",
  "dynamic_sampling = false",
  `trainer = "${url}"`,
  'trainer_api_key = "SKYRL_KEY"',
  `trainer_model = "${model}"`,
];

const evaluationConfig = (checkpoint: string): string[] => [
  ...EXPERIMENT,
  `model_path = "${checkpoint}"`,
  "[evaluation]",
  "limit = 24",
  "[secrets]",
  "required = []",
];

async function submit(
  platform: TestPlatform,
  kind: "train" | "eval",
  lines: readonly string[],
): Promise<string> {
  const file = `configs/${kind === "train" ? "training" : "eval"}/skyrl.toml`;
  await writeFile(join(platform.workspace, file), lines.join("\n"));
  const { resource } = await platform.answerOf(kind, "submit", file, "--yes");
  return z.object({ name: z.string() }).parse(resource).name;
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

import { createHash } from "node:crypto";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { trainingRoutes } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Ended } from "./support/command.ts";
import { startTestPlatform, type TestPlatform } from "./support/platform.ts";
import { curvesOf, recordedRollouts, trainingEnd } from "./support/runs.ts";
import { until } from "./support/until.ts";

/** Real runs of the shipped model, repeated by the real command from what the platform stored of them. */

const STEPS = 4;

let platform: TestPlatform;

beforeAll(async () => {
  platform = await startTestPlatform();
  await platform.answerOf("dataset", "upload", "data/multiply.jsonl");
}, 180_000);

afterAll(async () => {
  await platform?.[Symbol.asyncDispose]();
});

async function submit(label: string, advanced: readonly string[]): Promise<{ name: string; id: string }> {
  const file = `configs/training/${label}.toml`;
  const lines = [
    "[experiment]",
    'rollout = "multiply-local-openai"',
    'entrypoint = "main.ts"',
    'model_path = "osmosis/tiny-agent"',
    'dataset = "multiply"',
    "[training]",
    "lr = 6e-4",
    "n_samples_per_prompt = 4",
    "rollout_batch_size = 4",
    "max_prompt_length = 256",
    "max_response_length = 64",
    "agent_workflow_timeout_s = 60",
    "grader_timeout_s = 10",
    "[checkpoints]",
    "eval_interval = 0",
    "[advanced]",
    "holdout_rows = 200",
    "seed = 7",
    ...advanced,
  ];
  await writeFile(join(platform.workspace, file), lines.join("\n"));
  const { resource } = await platform.answerOf("train", "submit", file, "--yes");
  // The command's own envelope.
  return resource as { name: string; id: string };
}

type Shown = {
  step: number;
  from_step: number;
  equal: boolean | null;
  recorded: Record<string, number>;
  replayed: Record<string, number>;
  steps: { step: number; equal: boolean | null; replayed: Record<string, number> }[];
};

async function replay(name: string, ...args: string[]): Promise<Ended & { shown: Shown }> {
  const ended = await platform.osmosis("train", "replay", name, ...args, "--json");
  if (ended.stdout === "") throw new Error(ended.stderr);
  // The command's own envelope.
  return { ...ended, shown: (JSON.parse(ended.stdout) as { data: Shown }).data };
}

const COMPARED = ["train/loss", "train/grad_norm", "train/entropy_loss", "train/tokens"];

test("a step is repeated to the last bit, from the state before it or from the beginning of the run", async () => {
  const { name, id } = await submit("full", ['method = "full"', `max_steps = ${STEPS}`]);
  expect((await trainingEnd(platform.client, name)).training_run).toMatchObject({
    status: "finished",
    error: null,
  });
  const curves = await curvesOf(platform.client, name);
  const recordedAt = (step: number) => COMPARED.map((key) => curves[key]?.find(([one]) => one === step)?.[1]);

  const last = await replay(name, "--step", String(STEPS));
  expect(last.code).toBe(0);
  expect(last.shown).toMatchObject({ step: STEPS, from_step: STEPS - 1, equal: true });
  expect(COMPARED.map((key) => last.shown.replayed[key])).toEqual(recordedAt(STEPS));
  expect(last.shown.replayed["train/loss"]).toEqual(expect.any(Number));

  // Its state is long gone: everything before it is repeated, too.
  const middle = await replay(name, "--step", "2");
  expect(middle.code).toBe(0);
  expect(middle.shown).toMatchObject({ step: 2, from_step: 0, equal: true });
  expect(middle.shown.steps.map(({ step, equal }) => [step, equal])).toEqual([
    [1, true],
    [2, true],
  ]);
  expect(COMPARED.map((key) => middle.shown.replayed[key])).toEqual(recordedAt(2));

  const other = await replay(name, "--step", "2", "--set", "advanced.loss=cispo");
  expect(other.code).toBe(0);
  expect(other.shown).toMatchObject({ step: 2, equal: null });
  expect(other.shown.steps.map(({ equal }) => equal)).toEqual([true, null]);
  expect(other.shown.replayed["train/tokens"]).toBe(middle.shown.replayed["train/tokens"]);
  expect(other.shown.replayed["train/loss"]).not.toBe(middle.shown.replayed["train/loss"]);

  const refused = await platform.osmosis("train", "replay", name, "--step", String(STEPS + 1));
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain(`has no step ${STEPS + 1}: its last committed one is ${STEPS}`);

  await turnOneReward(id, 2);
  const tampered = await replay(name, "--step", "2");
  expect(tampered.code).toBe(1);
  expect(tampered.shown).toMatchObject({ step: 2, equal: false });
  expect(tampered.shown.steps.map(({ equal }) => equal)).toEqual([true, false]);
  expect(tampered.stderr).toContain("Step 2 is not what it was");
  evidence("full", { last: last.shown, middle: middle.shown, tampered: tampered.shown });
}, 300_000);

test("a LoRA run is repeated while it goes on", async () => {
  const { name } = await submit("lora", ['method = "lora"', "lora_rank = 8", "max_steps = 40"]);
  await until("two steps are committed", async () => {
    const { training_run: run } = await platform.client.call(trainingRoutes.get, { params: { name } });
    return run.current_step >= 2;
  });
  const { code, shown } = await replay(name, "--step", "2");
  const { training_run: run } = await platform.client.call(trainingRoutes.get, { params: { name } });
  expect(run.status).toBe("running");
  expect(code).toBe(0);
  expect(shown.equal).toBe(true);
  expect(shown.replayed["train/loss"]).toBe(shown.recorded["train/loss"]);
  await platform.answerOf("train", "stop", name, "--yes");
  await trainingEnd(platform.client, name);
  evidence("lora", { shown, at: run.current_step });
}, 300_000);

test("a run with a teacher and a penalty for leaving its base is repeated to the last bit", async () => {
  const { name } = await submit("taught", [
    'method = "lora"',
    "lora_rank = 8",
    "max_steps = 3",
    "kl_coef = 0.1",
    'teacher_model = "osmosis/tiny-agent"',
    "teacher_coef = 0.5",
  ]);
  const detail = await trainingEnd(platform.client, name);
  expect(detail.training_run).toMatchObject({ status: "finished", error: null });
  const { code, shown } = await replay(name, "--step", "2");
  expect(code).toBe(0);
  expect(shown).toMatchObject({ step: 2, from_step: 0, equal: true });
  expect(Object.keys(shown.replayed)).toEqual(
    expect.arrayContaining(["train/reference_kl/k3", "train/teacher_kl"]),
  );
  // The policy has left its base after a step.
  expect(shown.replayed["train/reference_kl/k3"]).toBeGreaterThan(0);
}, 300_000);

test("a LoRA checkpoint that was merged with its base answers as the platform's own does", async () => {
  const { name } = await submit("merged", ['method = "lora"', "lora_rank = 8", "max_steps = 2"]);
  await trainingEnd(platform.client, name);
  const checkpoint = `${name}-step-2`;
  const folder = join(platform.workspace, "../merged");
  const { resource: downloaded } = await platform.answerOf(
    "model",
    "download",
    checkpoint,
    "--merge",
    "-o",
    folder,
  );
  expect((await readdir(folder)).toSorted()).toEqual([
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
  ]);
  // What the answer lists is what lies there.
  const weights = await readFile(join(folder, "model.safetensors"));
  expect(downloaded).toMatchObject({
    files: [
      { name: "config.json" },
      { name: "generation_config.json" },
      {
        name: "model.safetensors",
        size_bytes: weights.length,
        sha256: createHash("sha256").update(weights).digest("hex"),
      },
      { name: "tokenizer.json" },
      { name: "tokenizer_config.json" },
    ],
  });
  await platform.answerOf("model", "import", folder, "--name", "my/merged");
  const outcomes = [];
  for (const model of [checkpoint, "my/merged"]) {
    const { resource } = await platform.answerOf(
      "eval",
      "submit",
      "configs/eval/multiply-local-openai.toml",
      "--model",
      model,
      "--yes",
      "--wait",
    );
    const { eval_run: run } = resource as { eval_run: { name: string } };
    const rollouts = await recordedRollouts(platform.client, "eval", run.name);
    outcomes.push(
      rollouts
        .map((one) => [one.row_index, one.reward, one.prompt_tokens, one.completion_tokens] as const)
        .toSorted(([a], [b]) => a - b),
    );
  }
  expect(outcomes[0]?.length).toBeGreaterThan(10);
  expect(outcomes[1]).toEqual(outcomes[0]);
}, 300_000);

/** Changes the stored reward of one rollout of a step, and nothing else. */
async function turnOneReward(runId: string, step: number): Promise<void> {
  const folder = join(platform.data, "blobs/blobs/runs~", `${runId}~`, "rollouts~");
  for (const file of await readdir(folder)) {
    const path = join(folder, file);
    const lines = (await readFile(path, "utf8")).split("\n");
    const index = lines.findIndex((line) => line.includes(`"step":${step},`) && /"reward":[01],/.test(line));
    const line = lines[index];
    if (line === undefined) continue;
    lines[index] = line.replace(/"reward":([01]),/, (_, reward) => `"reward":${reward === "1" ? 0 : 1},`);
    await writeFile(path, lines.join("\n"));
    return;
  }
  throw new Error(`step ${step} has no rollout with a reward`);
}

function evidence(what: string, facts: object): void {
  if (process.env["OSMOSIS_TEST_EVIDENCE"] === "1") {
    process.stdout.write(`replay ${what}: ${JSON.stringify(facts)}\n`);
  }
}

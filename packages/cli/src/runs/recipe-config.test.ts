import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { EvalRunConfig, TrainingRunConfig } from "@osmosis/protocol";
import { parse } from "smol-toml";
import { describe, expect, test } from "vitest";
import { z } from "zod";

const Row = z.object({ user_prompt: z.string() });

const RECIPES = join(import.meta.dirname, "../../../../templates/recipes");

describe.each(readdirSync(RECIPES))("the recipe %s", (recipe) => {
  const folder = join(RECIPES, recipe);
  const configsOf = (kind: "training" | "eval") =>
    readdirSync(join(folder, "configs", kind)).map((name) =>
      parse(readFileSync(join(folder, "configs", kind, name), "utf8")),
    );

  test("has configurations of files that it has", () => {
    const training = configsOf("training").map((config) => TrainingRunConfig.parse(config));
    const evals = configsOf("eval").map((config) => EvalRunConfig.parse(config));
    expect(training.length).toBeGreaterThan(0);
    for (const { experiment } of [...training, ...evals]) {
      expect(readdirSync(join(folder, "rollouts", experiment.rollout))).toContain(experiment.entrypoint);
      expect(readdirSync(join(folder, "data"))).toContain(`${experiment.dataset}.jsonl`);
    }
  });

  test("holds out rows whose questions it does not train on", () => {
    for (const config of configsOf("training")) {
      const { experiment, advanced } = TrainingRunConfig.parse(config);
      const text = readFileSync(join(folder, "data", `${experiment.dataset}.jsonl`), "utf8");
      const questions = text
        .trim()
        .split("\n")
        .map((line) => Row.parse(JSON.parse(line)).user_prompt);
      expect(new Set(questions).size).toBe(questions.length);
      expect(advanced.holdout_rows).toBeGreaterThan(0);
      expect(advanced.holdout_rows).toBeLessThan(questions.length);
    }
  });

  test("commits the lock that the platform installs, with the rollout in it", () => {
    const page = readFileSync(join(folder, "README.md"), "utf8");
    expect(page).toMatch(/^npm install$[^]*^git add .*package-lock\.json/m);
  });

  test("has rollouts whose own tests pass", async () => {
    const rollouts = join(folder, "rollouts");
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ["--test", "--test-reporter=tap", `${rollouts}/**/*.test.ts`],
      { env: { PATH: process.env["PATH"] } },
    );
    expect(stdout).toMatch(/^# pass [1-9]/m);
    expect(stdout).toMatch(/^# fail 0$/m);
  });
});

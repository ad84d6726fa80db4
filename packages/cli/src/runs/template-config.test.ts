import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  EvalRunConfig,
  EvaluationAdvanced,
  EvaluationSettings,
  TrainingAdvanced,
  TrainingRunConfig,
} from "@osmosis/protocol";
import { parse } from "smol-toml";
import { expect, test } from "vitest";
import { scaffoldFiles } from "../rollout/scaffold.ts";

const TEMPLATE = join(import.meta.dirname, "../../../../templates/workspace/configs");
const text = readFileSync(join(TEMPLATE, "training/default.toml"), "utf8");

/** Settings whose absence means something; the file shows an example of each. */
const WITHOUT_DEFAULT = new Set([
  "branch",
  "limit",
  "max_steps",
  "reward_range",
  "early_stop_reward",
  "trainer",
  "trainer_api_key",
  "trainer_reduction",
  "trainer_model",
  "teacher_model",
  "wandb_project",
  "wandb_entity",
  "mlflow_url",
]);

/** The file with every commented setting switched on, but for those without a default. */
function uncommented(text: string): Record<string, Record<string, unknown>> {
  const lines = text.split("\n").map((line) => {
    const key = /^# (\w+) = /.exec(line)?.[1];
    return key === undefined || WITHOUT_DEFAULT.has(key) ? line : line.slice(2);
  });
  // Tables of settings, as the schema checks below.
  return parse(lines.join("\n")) as Record<string, Record<string, unknown>>;
}

/** What a configuration shows and what holds without it, both without `experiment` and what has no default. */
function shownAndDefault(text: string, schema: typeof TrainingRunConfig | typeof EvalRunConfig): unknown[][] {
  const { experiment, secrets, ...shown } = uncommented(text);
  const defaults: Record<string, Record<string, unknown>> = schema.parse({ experiment, secrets });
  return Object.entries(shown).flatMap(([section, settings]) =>
    Object.entries(settings).map(([key, value]) => [section, key, value, defaults[section]?.[key]]),
  );
}

test("what `rollout init` writes shows the defaults that hold", () => {
  const textOf = (folder: string): string =>
    scaffoldFiles("mine").find(({ path }) => path === `configs/${folder}/mine.toml`)?.text ?? "";
  const shown = [
    ...shownAndDefault(textOf("training"), TrainingRunConfig),
    ...shownAndDefault(textOf("eval"), EvalRunConfig),
  ];
  expect(shown.length).toBeGreaterThan(15);
  for (const [section, key, value, preset] of shown)
    expect([section, key, value]).toEqual([section, key, preset]);
});

test("the template's training configuration shows every setting, with its default", () => {
  for (const [section, key, value, preset] of shownAndDefault(text, TrainingRunConfig)) {
    expect([section, key, value]).toEqual([section, key, preset]);
  }
  const named = new Set([...text.matchAll(/^#? ?(\w+) = /gm)].map((match) => match[1]));
  expect(Object.keys(TrainingAdvanced.shape).filter((key) => !named.has(key))).toEqual([]);
});

test("the template's evaluation configuration shows every setting, with its default", () => {
  const file = readFileSync(join(TEMPLATE, "eval/default.toml"), "utf8").replace(/^# \[env\]\n.*\n/m, "");
  for (const [section, key, value, preset] of shownAndDefault(file, EvalRunConfig)) {
    expect([section, key, value]).toEqual([section, key, preset]);
  }
  const named = new Set([...file.matchAll(/^#? ?(\w+) = /gm)].map((match) => match[1]));
  const settings = Object.keys({ ...EvaluationSettings.shape, ...EvaluationAdvanced.shape });
  expect(settings.filter((key) => !named.has(key))).toEqual([]);
});

test("configs/AGENTS.md of the template names every setting of a training run's [advanced]", () => {
  const page = readFileSync(join(TEMPLATE, "AGENTS.md"), "utf8");
  const missing = Object.keys(TrainingAdvanced.shape).filter((key) => !new RegExp(`\\b${key}\\b`).test(page));
  expect(missing).toEqual([]);
});

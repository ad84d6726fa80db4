import { readFileSync } from "node:fs";
import { join } from "node:path";
import { TrainingAdvanced, TrainingRunConfig } from "@osmosis/protocol";
import { parse } from "smol-toml";
import { expect, test } from "vitest";

const TEMPLATE = join(import.meta.dirname, "../../../../templates/workspace/configs");
const text = readFileSync(join(TEMPLATE, "training/default.toml"), "utf8");

/** Settings whose absence means something; the file shows an example of each. */
const WITHOUT_DEFAULT = new Set([
  "branch",
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
function uncommented(): Record<string, Record<string, unknown>> {
  const lines = text.split("\n").map((line) => {
    const key = /^# (\w+) = /.exec(line)?.[1];
    return key === undefined || WITHOUT_DEFAULT.has(key) ? line : line.slice(2);
  });
  // Tables of settings, as the schema checks below.
  return parse(lines.join("\n")) as Record<string, Record<string, unknown>>;
}

test("the template's training configuration shows every setting, with its default", () => {
  const shown = uncommented();
  const { experiment } = shown;
  const defaults: Record<string, Record<string, unknown>> = TrainingRunConfig.parse({ experiment });
  for (const [section, settings] of Object.entries(shown)) {
    if (section === "experiment") continue;
    for (const [key, value] of Object.entries(settings)) {
      expect([section, key, value]).toEqual([section, key, defaults[section]?.[key]]);
    }
  }
  const named = new Set([...text.matchAll(/^#? ?(\w+) = /gm)].map((match) => match[1]));
  expect(Object.keys(TrainingAdvanced.shape).filter((key) => !named.has(key))).toEqual([]);
});

test("configs/AGENTS.md of the template names every setting of a training run's [advanced]", () => {
  const page = readFileSync(join(TEMPLATE, "AGENTS.md"), "utf8");
  const missing = Object.keys(TrainingAdvanced.shape).filter((key) => !new RegExp(`\\b${key}\\b`).test(page));
  expect(missing).toEqual([]);
});

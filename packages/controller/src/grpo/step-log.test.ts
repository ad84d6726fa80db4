import { expect, test } from "vitest";
import { configOf } from "../../test/training-life.ts";
import { warnAboutSettings } from "./step-log.ts";

function warningsOf(advanced: Parameters<typeof configOf>[0], totalSteps: number): string[] {
  const said: string[] = [];
  warnAboutSettings(configOf(advanced), { log: ({ message }) => said.push(message), totalSteps });
  return said;
}

test("a warm-up that the run never leaves is said", () => {
  expect(warningsOf({ warmup_steps: 12 }, 12)).toEqual([
    expect.stringContaining("The warm-up takes 12 steps and the run has 12"),
  ]);
  expect(warningsOf({ warmup_steps: 11 }, 12)).toEqual([]);
});

test("stopping early without a validation is said", () => {
  expect(warningsOf({ early_stop_patience: 2, holdout_rows: 0 }, 12)).toEqual([
    expect.stringContaining("The run cannot stop early"),
  ]);
});

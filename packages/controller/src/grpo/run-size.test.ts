import { TrainingRunConfig } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { runSize } from "./run-size.ts";

const sizeOf = (advanced: object, rows: number, checkpoints: object = {}) =>
  runSize(
    TrainingRunConfig.parse({
      experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
      training: { rollout_batch_size: 8, n_samples_per_prompt: 4 },
      checkpoints: { eval_interval: 10, ...checkpoints },
      advanced: { holdout_rows: 100, max_steps: 25, ...advanced },
    }),
    rows,
  );

test("a run rolls out up to dynamic_sampling_cap times its prompts, and its held-out rows at every validation", () => {
  expect(sizeOf({}, 600)).toEqual({
    steps: 25,
    rollouts: 25 * 8 * 4,
    rolloutsAtMost: 25 * 24 * 4,
    // After the steps 10, 20 and 25.
    validationRollouts: 300,
  });
});

test("where no group is replaced, the prompts of the steps are all", () => {
  for (const advanced of [{ dynamic_sampling: false }, { kl_coef: 0.1 }]) {
    expect(sizeOf(advanced, 600)).toMatchObject({ rollouts: 800, rolloutsAtMost: 800 });
  }
  // 20 rows are left to train on: a step of 8 has 12 others.
  expect(sizeOf({}, 120)).toMatchObject({ steps: 2, rollouts: 64, rolloutsAtMost: 2 * 20 * 4 });
});

test("without validation nothing is rolled out for it", () => {
  expect(sizeOf({ holdout_rows: 0 }, 600).validationRollouts).toBe(0);
  expect(sizeOf({}, 600, { eval_interval: 0 }).validationRollouts).toBe(0);
});

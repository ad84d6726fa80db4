import { TrainingRunConfig } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { learningRate, stepsOf, tasksOfStep } from "./schedule.ts";

function configOf(training: object, advanced: object = {}): TrainingRunConfig {
  return TrainingRunConfig.parse({
    experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
    training: { rollout_batch_size: 4, n_samples_per_prompt: 2, ...training },
    advanced,
  });
}

const rowsOf = (count: number) =>
  Array.from({ length: count }, (_, row_index) => ({ row_index, messages: [], label: null, metadata: null }));

test.each([
  [configOf({}), 20, 5],
  [configOf({}), 23, 5],
  [configOf({ total_epochs: 3 }), 23, 17],
  [configOf({}), 2, 1],
  [configOf({}, { holdout_rows: 10 }), 20, 2],
  [configOf({}, { holdout_rows: 20 }), 20, 0],
  [configOf({ total_epochs: 9 }, { max_steps: 7 }), 20, 7],
])("a run has its whole batches as steps (%#)", (config, rows, steps) => {
  expect(stepsOf(config, rows)).toBe(steps);
});

test("an epoch goes through all rows but the held-out ones once, each with its samples", () => {
  const config = configOf({ total_epochs: 2 }, { holdout_rows: 4, seed: 5 });
  const rows = rowsOf(20);
  const epochs = [0, 1].map((epoch) =>
    [1, 2, 3, 4].flatMap((step) => tasksOfStep(config, rows, epoch * 4 + step)),
  );
  for (const tasks of epochs) {
    const seen = tasks.filter(({ sampleIndex }) => sampleIndex === 0).map(({ row }) => row.row_index);
    expect([...seen].sort((a, b) => a - b)).toEqual(rows.slice(4).map(({ row_index }) => row_index));
    expect(tasks.map(({ sampleIndex }) => sampleIndex)).toEqual(tasks.map((_, index) => index % 2));
  }
  const orders = epochs.map((tasks) => tasks.map(({ row }) => row.row_index).join());
  expect(new Set(orders).size).toBe(2);
  expect(tasksOfStep(config, rows, 3)).toEqual(tasksOfStep(config, rows, 3));
  const other = configOf({ total_epochs: 2 }, { holdout_rows: 4, seed: 6 });
  expect(tasksOfStep(other, rows, 1)).not.toEqual(tasksOfStep(config, rows, 1));
});

test("a step that spans epochs makes a group of each meeting with a row", () => {
  const tasks = tasksOfStep(configOf({ total_epochs: 2 }), rowsOf(3), 1);
  expect(tasks.map(({ group }) => group)).toEqual([0, 0, 1, 1, 2, 2, 3, 3]);
  const keys = tasks.map(({ row, sampleIndex }) => `${row.row_index}/${sampleIndex}`);
  expect(new Set(keys).size).toBe(8);
  expect(Math.max(...tasks.map(({ sampleIndex }) => sampleIndex))).toBe(3);
});

test("fewer rows than a batch make one smaller step", () => {
  expect(tasksOfStep(configOf({}), rowsOf(3), 1)).toHaveLength(6);
});

test("the learning rate warms up, and stays or falls to a tenth", () => {
  const rates = (advanced: object) =>
    [1, 2, 5, 10].map((step) => learningRate(configOf({ lr: 1 }, advanced), { step, totalSteps: 10 }));
  expect(rates({})).toEqual([1, 1, 1, 1]);
  expect(rates({ warmup_steps: 4 })).toEqual([0.25, 0.5, 1, 1]);
  expect(rates({ lr_schedule: "linear" })).toEqual([
    1,
    0.9,
    expect.closeTo(0.6, 12),
    expect.closeTo(0.1, 12),
  ]);
  // Half of the way down at half of the way, slow at both ends.
  expect(
    [1, 3, 6, 9, 11].map((step) =>
      learningRate(configOf({ lr: 1 }, { lr_schedule: "cosine" }), { step, totalSteps: 11 }),
    ),
  ).toEqual([
    1,
    expect.closeTo(0.55 + 0.45 * Math.cos(Math.PI / 5), 12),
    expect.closeTo(0.55, 12),
    expect.closeTo(0.55 - 0.45 * Math.cos(Math.PI / 5), 12),
    expect.closeTo(0.1, 12),
  ]);
  for (const lr_schedule of ["linear", "cosine"]) {
    expect(learningRate(configOf({ lr: 1 }, { lr_schedule }), { step: 1, totalSteps: 1 })).toBe(1);
  }
});

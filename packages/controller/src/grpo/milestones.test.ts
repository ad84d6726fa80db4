import type { PastStep } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { configOf } from "../../test/training-life.ts";
import { openMilestones } from "./milestones.ts";

const plain = (step: number, reward: number | null): PastStep => ({
  step,
  reward,
  validation_reward: null,
  validation_n: 0,
  update: "made",
});
const validated = (step: number, validation_reward: number | null): PastStep => ({
  step,
  reward: 0.1,
  validation_reward,
  validation_n: 4,
  update: "made",
});

/** What is said after each step. */
function follow(config: ReturnType<typeof configOf>, steps: readonly PastStep[]) {
  const milestones = openMilestones(config, []);
  return steps.map((step) => {
    milestones.add(step);
    return { isBest: milestones.isBest(), ends: milestones.earlyStop() !== undefined };
  });
}

test("the best step has the highest validation reward; of equal ones the first; training rewards do not compete", () => {
  const said = follow(configOf(), [validated(1, 0.4), plain(2, 0.9), validated(3, 0.4), validated(4, 0.6)]);
  expect(said.map(({ isBest }) => isBest)).toEqual([true, false, false, true]);
});

test("without validation the best step is the best of those that are kept anyway", () => {
  const config = configOf({ holdout_rows: 0 }, { checkpoints: { checkpoint_save_freq: 2 } });
  const said = follow(config, [plain(1, 0.9), plain(2, 0.4), plain(3, 0.3), plain(4, 0.5), plain(5, 0.4)]);
  expect(said.map(({ isBest }) => isBest)).toEqual([true, true, false, true, false]);
});

test("a run ends after so many validations in a row that are no better", () => {
  const config = configOf({ early_stop_patience: 2 });
  const steps = [validated(1, 0.4), validated(2, 0.5), plain(3, 1), validated(4, null), validated(5, 0.5)];
  expect(follow(config, steps).map(({ ends }) => ends)).toEqual([false, false, false, false, true]);
  // A worker that takes the run up after its last step comes to the same end.
  expect(openMilestones(config, steps).earlyStop()).toBe(
    "The last 2 validations were no better than that of step 2, whose reward is 0.5; early_stop_patience is 2.",
  );
});

test("a run ends when a validation reaches the reward that is enough", () => {
  const config = configOf({ early_stop_reward: 0.8 });
  expect(
    follow(config, [plain(1, 1), validated(2, 0.79), validated(3, 0.8)]).map(({ ends }) => ends),
  ).toEqual([false, false, true]);
});

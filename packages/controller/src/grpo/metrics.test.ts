import type { RolloutOutcome } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { recordOf } from "../../test/records.ts";
import { rolloutMetrics, validationMetrics } from "./metrics.ts";

function rolloutOf(reward: number | null, outcome: RolloutOutcome) {
  return recordOf({ reward, outcome });
}

test("the n beside a pass rate is its denominator", () => {
  const rollouts = [
    rolloutOf(1, "ok"),
    rolloutOf(0, "truncated"),
    rolloutOf(null, "agent"),
    rolloutOf(null, "provider"),
    rolloutOf(null, "lost"),
  ];
  const group = { rollouts_G: rollouts, rewards_G: rollouts.map(({ reward }) => reward) };
  expect(rolloutMetrics([group], { temperature: 1 })).toMatchObject({
    "rollout/pass_rate": 1 / 3,
    "rollout/n": 3,
    "rollout/scored": 2,
    "rollout/raw_reward": 0.5,
    "rollout/reward_min": 0,
    "rollout/reward_max": 1,
  });
  expect(validationMetrics(rollouts, 0)).toMatchObject({
    "eval/validation/pass_rate": 1 / 3,
    "eval/validation/n": 3,
    "eval/validation/scored": 2,
  });
});

import { expect, test } from "vitest";
import { recordOf, sequenceOf } from "../../test/records.ts";
import { trainingConfig } from "../../test/training-config.ts";
import { batchOf } from "./batch.ts";
import { createStopwatch } from "./stopwatch.ts";

test("a step's speed is that of what it did itself: rollouts of an earlier life count for nothing", async () => {
  let milliseconds = 0;
  const clock = { now: () => milliseconds, sleep: () => Promise.resolve() };
  const [earlier, first, second] = [1, 1, 0].map((reward) =>
    recordOf({ reward, completion_tokens: 50, sequences: [sequenceOf(50)] }),
  );
  if (earlier === undefined || first === undefined || second === undefined) throw new Error("three rollouts");
  const rollouts = [earlier, first, second];
  const watch = createStopwatch(clock, [earlier]);
  await watch.time("rollout", async () => (milliseconds += 2000));
  await watch.time("train", async () => (milliseconds += 500));
  const group = { rollouts_G: rollouts, rewards_G: rollouts.map(({ reward }) => reward) };
  expect(watch.metrics(rollouts, batchOf([group], trainingConfig()))).toEqual({
    "perf/rollout_time": 2,
    "perf/train_time": 0.5,
    "perf/step_time": 2.5,
    // 2 of the 3 rollouts in 2 s; 3 sequences of 51 tokens in half a second.
    "perf/sample_tokens_per_second": 50,
    "perf/rollouts_per_minute": 60,
    "perf/train_tokens_per_second": 306,
  });
});

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import {
  connectRolloutServer,
  openGateway,
  systemClock,
  trainRun,
  type TrainRunOptions,
} from "@osmosis/controller";
import { createEmbeddedService, loadChatCodec } from "@osmosis/engine";
import { TrainingRunConfig, type DatasetRow } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { CHECKOUT } from "./support/command.ts";
import { startTemplateRollout } from "./support/rollout-server.ts";

/** The shipped model, agent, grader and data set, the real engine and the real loop; only the platform is left out. */

const MODEL = join(CHECKOUT, "packages/engine/models/tiny-agent");
const DATA = join(CHECKOUT, "templates/workspace/data/multiply.jsonl");

const STEPS = 8;
const SHORT = 2;
const SEED = 1;

const config = (maxSteps: number, seed: number) =>
  TrainingRunConfig.parse({
    experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
    training: {
      // Higher than in the template, so that fewer steps show more.
      lr: 6e-4,
      rollout_batch_size: 16,
      n_samples_per_prompt: 8,
      max_prompt_length: 256,
      max_response_length: 64,
      agent_workflow_timeout_s: 120,
      grader_timeout_s: 60,
    },
    checkpoints: { eval_interval: 0, checkpoint_save_freq: 1000 },
    // Every curve is made of the same number of rollouts.
    advanced: { method: "full", holdout_rows: 200, max_steps: maxSteps, seed, dynamic_sampling: false },
  });

type Steps = Record<string, number>[];

test("rewards teach the tiny agent, by the same curve for the same seed; shuffled among the rollouts they teach nothing", async () => {
  const honest = await train({ config: config(STEPS, SEED) });
  const again = await train({ config: config(SHORT, SEED) });
  const otherwise = await train({ config: config(1, SEED + 1) });
  const shuffled = await train({
    config: config(STEPS, SEED),
    transformRewards: (rewards_P_G, step) => {
      const pool = inRandomOrder(rewards_P_G.flat(), step);
      return rewards_P_G.map((rewards_G) => rewards_G.map(() => pool.pop() ?? null));
    },
  });

  expect(curveOf(again)).toEqual(curveOf(honest).slice(0, SHORT));
  expect(curveOf(otherwise)).not.toEqual(curveOf(honest).slice(0, 1));

  const gain = (steps: Steps) => mean(rewardsOf(steps).slice(-3)) - (rewardsOf(steps)[0] ?? Number.NaN);
  if (process.env["OSMOSIS_TEST_EVIDENCE"] === "1") {
    process.stdout.write(
      `learning: ${JSON.stringify({ honest: rewardsOf(honest), again: rewardsOf(again), shuffled: rewardsOf(shuffled) })}\n`,
    );
  }
  // 384 rollouts at the end and 128 at the start: 0.1 is two standard errors.
  expect(gain(honest)).toBeGreaterThan(0.15);
  expect(gain(shuffled)).toBeLessThan(0.1);
  // Both made updates; only what the rewards said differed.
  expect(shuffled.slice(0, 3).map((metrics) => metrics["train/updated"])).toEqual([1, 1, 1]);
}, 240_000);

async function train(changes: Pick<TrainRunOptions, "config" | "transformRewards">): Promise<Steps> {
  await using service = createEmbeddedService({ threads: 2 });
  await using model = await service.createModel({ folder: MODEL }, { method: { type: "full" }, seed: SEED });
  await using rollouts = await startTemplateRollout();
  await using gateway = await openGateway({
    policy: { type: "local", name: "tiny-agent", sampler: model, codec: await loadChatCodec(MODEL) },
    clock: systemClock,
  });
  const steps: Steps = [];
  const end = await trainRun({
    runId: "learning",
    model,
    gateway,
    server: connectRolloutServer({
      baseUrl: rollouts.url,
      apiKey: rollouts.token,
      fetch,
      clock: systemClock,
    }),
    rows: await readRows(),
    recorded: [],
    committedSteps: 0,
    ports: {
      record: async () => {},
      commitStep: async ({ metrics }) => void steps.push({ ...metrics }),
      checkpoint: async () => {},
      log: () => {},
    },
    clock: systemClock,
    signal: new AbortController().signal,
    ...changes,
  });
  expect(end).toEqual({ status: "finished" });
  return steps;
}

async function readRows(): Promise<DatasetRow[]> {
  const lines = (await readFile(DATA, "utf8")).trim().split("\n");
  return lines.map((line, row_index) => {
    // The shipped data set.
    const row = JSON.parse(line) as Record<"system_prompt" | "user_prompt" | "ground_truth", string>;
    return {
      row_index,
      messages: [
        { role: "system", content: row.system_prompt },
        { role: "user", content: row.user_prompt },
      ],
      label: row.ground_truth,
      metadata: null,
    };
  });
}

const rewardsOf = (steps: Steps): number[] =>
  steps.map((metrics) => metrics["rollout/raw_reward"] ?? Number.NaN);

const curveOf = (steps: Steps): (number | undefined)[][] =>
  steps.map((metrics) =>
    ["rollout/raw_reward", "train/loss", "train/grad_norm", "train/entropy_loss"].map((key) => metrics[key]),
  );

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** Fisher and Yates, with a generator of its own. */
function inRandomOrder<Item>(items: readonly Item[], seed: number): Item[] {
  const order = [...items];
  let state = seed * 2_654_435_761;
  for (let last = order.length - 1; last > 0; last--) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const other = Math.floor((state / 2 ** 32) * (last + 1));
    [order[last], order[other]] = [order[other] as Item, order[last] as Item]; // both are inside the list
  }
  return order;
}

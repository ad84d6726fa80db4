import { expect, test } from "vitest";
import type { Bandit } from "../../test/bandit.ts";
import { configOf, live, openStore } from "../../test/training-life.ts";
import type { Life } from "../../test/training-life.ts";

/** A run of which something becomes unusable; everything that the platform has kept of it. */
async function diverge(life: Life, advanced: object = {}) {
  const store = await openStore();
  const config = configOf(
    { max_steps: 8, ...advanced },
    { checkpoints: { eval_interval: 0, checkpoint_save_freq: 1 } },
  );
  const { result } = await live(store, { config, ...life });
  return { store, result, checkpoints: store.checkpoints.map(({ step }) => step) };
}

/** A trainer whose numbers are no numbers any more after so many updates. */
const unusableAfter =
  (updates: number): ((bandit: Bandit) => Bandit) =>
  (bandit) => {
    let [made, syncs] = [0, 0];
    return {
      ...bandit,
      async optimStep(params) {
        made += 1;
        return bandit.optimStep(params);
      },
      async forward(...given) {
        const found = await bandit.forward(...given);
        if (made >= updates) for (const row of found.logprobs_B_T) row.fill(Number.NaN);
        return found;
      },
      async syncSampler() {
        syncs += 1;
        if (made >= updates) throw new Error(`these weights would be sampled from (${syncs})`);
        return bandit.syncSampler();
      },
    };
  };

test("weights that an update has ruined are neither sampled from nor kept, and the run says in which step", async () => {
  const { result, store, checkpoints } = await diverge({ trainer: unusableAfter(3) });
  expect(result).toMatchObject({
    code: "RUN_FAILED",
    message: expect.stringMatching(
      /^Step 3: Training has diverged: after the update with learning rate 0\.25 .* NaN/,
    ),
    hint: expect.stringContaining("Lower [training].lr"),
  });
  expect(store.steps.map(({ step }) => step)).toEqual([1, 2]);
  expect(checkpoints).toEqual([1, 2]);
});

test("a gradient that stays without a number ends the run, with the weights of the last update", async () => {
  let made = 0;
  const { result, store } = await diverge({
    trainer: (bandit) => ({
      ...bandit,
      async optimStep(params) {
        // Once, and later for good.
        made += 1;
        if (made === 2 || made >= 4) return { gradNorm: Number.NaN, updated: false };
        return bandit.optimStep(params);
      },
    }),
  });
  expect(result).toEqual({
    status: "failed",
    error: expect.stringContaining("Step 6: the gradient was not finite in 3"),
  });
  expect(store.steps.map(({ metrics }) => metrics["train/updated"])).toEqual([1, 0, 1, 0, 0]);
  expect(store.logs.filter(({ message }) => message.includes("the update was skipped"))).toHaveLength(4);
});

test("gradients without a number are counted over the lives of a run, and over steps that have none", async () => {
  const store = await openStore();
  const life: Life = {
    config: configOf({ max_steps: 8 }, { checkpoints: { eval_interval: 0 } }),
    trainer: (bandit) => ({
      ...bandit,
      optimStep: async () => ({ gradNorm: Number.NaN, updated: false }),
    }),
  };
  await live(store, { ...life, dies: ({ committing }) => committing === 2 });
  expect(store.steps).toHaveLength(1);
  expect((await live(store, life)).result).toMatchObject({
    status: "failed",
    error: expect.stringContaining("Step 4: the gradient was not finite in 3"),
  });
  expect(store.steps.map(({ metrics }) => metrics["train/sequences"] ?? 0)).toEqual([24, 8, 0]);
});

test("a teacher without numbers is named", async () => {
  const teacher = {
    contextLength: 400,
    logprobs: async (data_B: readonly { readonly tokens_T: readonly number[] }[]) =>
      data_B.map(({ tokens_T }) => new Float32Array(tokens_T.length).fill(Number.NaN)),
    async [Symbol.asyncDispose]() {},
  };
  const { result } = await diverge({ teacher }, { teacher_model: "t" });
  expect(result).toMatchObject({
    message: "Step 1: A log probability of the teacher is NaN: its weights are unusable.",
  });
});

test("a metric that is not finite is left out of the step, and the log says so", async () => {
  const { store } = await diverge({
    trainer: (bandit) => ({
      ...bandit,
      async sample(request) {
        const found = await bandit.sample(request);
        return { ...found, logprobs_T: found.logprobs_T.map((logprob) => logprob - 2000) };
      },
    }),
  });
  expect(store.steps[0]?.metrics).not.toHaveProperty("train/ratio/max");
  expect(JSON.stringify(store.logs)).toContain("left out of the step's metrics");
  expect(JSON.stringify(store.logs)).toContain("train/ratio/max is Infinity");
});

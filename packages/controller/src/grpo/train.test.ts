import { expect, test } from "vitest";
import { agent, configOf, curveOf, live, openStore, rewardsOf } from "../../test/training-life.ts";
import type { Life } from "../../test/training-life.ts";
import { shuffled } from "../seed.ts";

test("rewards alone teach the policy, and every curve is there", async () => {
  const store = await openStore();
  const { result, model } = await live(store);
  expect(result).toEqual({ status: "finished" });
  expect(store.steps.map(({ step }) => step)).toEqual(Array.from({ length: 12 }, (_, index) => index + 1));

  const rewards = rewardsOf(store);
  expect(rewards[0]).toBeLessThan(0.35);
  expect(rewards.at(-1)).toBeGreaterThan(0.8);
  const prompt = "<|im_start|>user\nEven?<|im_end|>\n<|im_start|>assistant\n";
  expect(model.probabilities(prompt)[7]).toBeGreaterThan(0.8);

  const [first, ...others] = store.steps;
  expect(first).toMatchObject({ examples: 32 });
  expect(first?.metrics).toMatchObject({
    "rollout/n": 32,
    "rollout/scored": 32,
    "rollout/temperature": 1,
    "rollout/outcome/ok": 32,
    "rollout/response_lengths": 2,
    "rollout/staleness/max": 0,
    "train/lr": 0.25,
    "train/updated": 1,
    "train/train_rollout_logprob_abs_diff_max": expect.closeTo(0, 6),
    "train/pg_clipfrac": 0,
    "perf/step_time": expect.any(Number),
    "perf/sample_tokens_per_second": expect.any(Number),
  });
  expect(others.every(({ metrics }) => Object.values(metrics).every(Number.isFinite))).toBe(true);

  const validated = store.steps.filter(({ metrics }) => "eval/validation/reward" in metrics);
  expect(validated.map(({ step }) => step)).toEqual([5, 10, 12]);
  expect(validated.at(-1)?.metrics).toMatchObject({
    "eval/validation/pass_rate": 1,
    "eval/validation/n": 4,
    "eval/validation/temperature": 0,
  });
  expect(store.checkpoints).toEqual([
    // Step 5 is the best of the validations, of which the later ones are no better.
    { step: 5, reward: 1, isBest: true, isLast: false, files: ["weights.json"] },
    { step: 10, reward: 1, isBest: false, isLast: false, files: ["weights.json"] },
    { step: 12, reward: 1, isBest: false, isLast: true, files: ["weights.json"] },
  ]);
  expect(store.logs.at(-1)?.message).toMatch(
    /^Step 12 of 12: reward .*n=32, temperature 1.*n=4, temperature 0/,
  );
  const held = store.rollouts.filter(({ phase }) => phase === "train").map(({ row_index }) => row_index);
  expect(Math.min(...held)).toBe(4);
});

test("with the rewards shuffled among the rollouts it learns nothing", async () => {
  const store = await openStore();
  await live(store, {
    transformRewards(rewards_P_G, step) {
      const pool = shuffled(rewards_P_G.flat(), step);
      return rewards_P_G.map((rewards_G) => rewards_G.map(() => pool.pop() ?? null));
    },
  });
  const rewards = rewardsOf(store);
  expect(rewards).toHaveLength(12);
  expect(Math.max(...rewards.slice(-4))).toBeLessThan(0.5);
});

test("the same seed gives the same curve, another seed another one", async () => {
  const stores = [await openStore(), await openStore(), await openStore()];
  const [a, b, c] = stores;
  if (a === undefined || b === undefined || c === undefined) throw new Error("three stores");
  await live(a, { config: configOf({ max_steps: 4 }) });
  await live(b, { config: configOf({ max_steps: 4 }), concurrency: 3 });
  await live(c, { config: configOf({ max_steps: 4, seed: 12 }) });
  expect(curveOf(b)).toEqual(curveOf(a));
  expect(curveOf(c)).not.toEqual(curveOf(a));
});

test("a worker that dies in the middle of a step is taken over with the identical curve, and no rollout runs twice", async () => {
  const whole = await openStore();
  await live(whole, { config: configOf({ max_steps: 6 }) });

  const store = await openStore();
  const config = configOf({ max_steps: 6 });
  // In the sampling of step 3; between the update of step 4 and its commit; in the validation of step 5.
  const deaths: NonNullable<Life["dies"]>[] = [
    ({ recorded }) => recorded >= 32 * 2 + 10,
    ({ committing }) => committing === 4,
    ({ recorded }) => recorded >= 32 * 5 + 2,
  ];
  const started: (string | null | undefined)[] = [];
  for (const dies of [...deaths, undefined]) {
    const { result, server } = await live(store, { config, ...(dies === undefined ? {} : { dies }) });
    if (dies !== undefined) expect(String(result)).toContain("kill -9");
    started.push(...server.requests.map(({ rollout_id }) => rollout_id));
  }
  expect(curveOf(store)).toEqual(curveOf(whole));
  const ids = store.rollouts.map(({ rollout_id }) => rollout_id);
  expect(new Set(ids).size).toBe(ids.length);
  expect([...ids].sort()).toEqual(whole.rollouts.map(({ rollout_id }) => rollout_id).sort());
  // What was under way at a death was not recorded, so it may start again; what was recorded never does.
  const counts = new Map<unknown, number>();
  for (const id of started) counts.set(id, (counts.get(id) ?? 0) + 1);
  const recordedAtFirstDeath = ids.slice(0, 64);
  expect(recordedAtFirstDeath.every((id) => counts.get(id) === 1)).toBe(true);
});

test("a step whose groups are all the same makes no update, but is committed and counted", async () => {
  const store = await openStore();
  const { result } = await live(store, {
    config: configOf({ max_steps: 2 }),
    rolloutServer: {
      agent: async (context) => ({ sample: { ...(await agent(context)).sample, reward: 0 } }),
    },
  });
  expect(result).toEqual({ status: "finished" });
  expect(store.steps).toHaveLength(2);
  expect(store.steps[1]?.metrics).toMatchObject({
    "train/updated": 0,
    "train/groups_left_out": 4,
    "rollout/group/all_same": 1,
    "rollout/group/all_bad": 1,
    "rollout/staleness/max": 0,
  });
  expect(store.steps[1]?.metrics["train/loss"]).toBeUndefined();
});

test("rollouts that fail are left out and counted, and the others still teach", async () => {
  const store = await openStore();
  const { result } = await live(store, {
    config: configOf({ max_steps: 3 }),
    rolloutServer: {
      agent: (context) => {
        if (context.request.rollout_id?.endsWith("n0") === true) throw new Error("flaky");
        return agent(context);
      },
    },
  });
  expect(result).toEqual({ status: "finished" });
  expect(store.steps[2]?.metrics).toMatchObject({
    "rollout/scored": 28,
    "rollout/outcome/agent": 4,
    "rollout/outcome/ok": 28,
    "train/rollouts_left_out": 4,
    "train/updated": 1,
  });
});

test("without held-out rows nothing is validated, whatever the interval", async () => {
  const store = await openStore();
  const config = configOf({ max_steps: 2, holdout_rows: 0 }, { checkpoints: { eval_interval: 1 } });
  expect((await live(store, { config })).result).toEqual({ status: "finished" });
  expect(store.steps).toHaveLength(2);
  const keys = store.steps.flatMap(({ metrics }) => Object.keys(metrics));
  expect(keys.filter((key) => key.startsWith("eval/") || key.includes("validation"))).toEqual([]);
  expect(store.logs.map(({ message }) => message).join()).not.toContain("validation");
});

test("a first step without any reward ends the run, and says what went wrong", async () => {
  const store = await openStore();
  const { result } = await live(store, {
    rolloutServer: {
      agent: () => {
        throw new Error("no module named multiply");
      },
    },
  });
  expect(result).toEqual({
    status: "failed",
    error: expect.stringMatching(
      /None of the 32 rollouts has a reward.*agent: Error: no module named multiply/,
    ),
  });
  expect(store.steps).toEqual([]);
});

test("too many failures in a row end the run in the middle of a step", async () => {
  const store = await openStore();
  let calls = 0;
  const { result, server } = await live(store, {
    config: configOf({ max_consecutive_failures: 5 }),
    concurrency: 2,
    rolloutServer: {
      agent: (context) => {
        if (++calls > 40) throw new Error("the disk is full");
        return agent(context);
      },
    },
  });
  expect(result).toEqual({
    status: "failed",
    error: expect.stringMatching(/^5 rollouts in a row ended with the outcome agent.*the disk is full/),
  });
  expect(store.steps).toHaveLength(1);
  expect(server.requests.length).toBeLessThan(50);
});

test("a run whose rows are all held out says so", async () => {
  const store = await openStore();
  const { result } = await live(store, { config: configOf({ holdout_rows: 20 }) });
  expect(result).toEqual({ status: "failed", error: expect.stringContaining("held out") });
});

test("failures that may not happen twice are run again, with the seed of the first, and each execution is counted", async () => {
  const [plain, store] = [await openStore(), await openStore()];
  const config = configOf({ group_policy: "retry", group_retries: 1, max_steps: 2 });
  const failing: Life = {
    config,
    rolloutServer: {
      agent: (context) => {
        const id = context.request.rollout_id ?? "";
        if (id.includes("-n1-") || id.endsWith("-n1")) return { status: "failure", err_category: "timeout" };
        if (id.endsWith("-n2")) return { status: "failure", err_category: "timeout" };
        return agent(context);
      },
    },
  };
  await live(plain, { config });
  // It dies between a failed execution and its repeat, too.
  await live(store, { ...failing, dies: ({ recorded }) => recorded > 24 });
  const { result } = await live(store, failing);
  expect(result).toEqual({ status: "finished" });
  for (const { metrics, examples } of store.steps) {
    // Of each of 4 groups n1 fails twice, n2 once.
    expect(metrics).toMatchObject({
      "rollout/retries": 8,
      "rollout/retries/timeout": 8,
      "rollout/ended": 40,
      "rollout/ended/timeout": 12,
      "rollout/outcome/timeout": 4,
      "rollout/scored": 28,
    });
    expect(examples).toBe(40);
  }
  const answersOf = (rollouts: typeof store.rollouts, sample: number) =>
    rollouts
      .filter(({ step, sample_index, reward }) => step === 1 && sample_index === sample && reward !== null)
      .map(({ row_index, messages }) => [row_index, messages.at(-1)?.["content"]] as const)
      .toSorted(([a], [b]) => a - b);
  expect(answersOf(store.rollouts, 2)).toEqual(answersOf(plain.rollouts, 2));
  expect(new Set(store.rollouts.map(({ rollout_id: id }) => id)).size).toBe(store.rollouts.length);
});

test("a run that is good enough ends early, with a last checkpoint; its successor comes to the same end at once", async () => {
  const config = configOf({ early_stop_reward: 1 }, { checkpoints: { eval_interval: 2 } });
  const store = await openStore();
  expect((await live(store, { config })).result).toEqual({ status: "finished" });
  const last = store.steps.at(-1)?.step ?? 0;
  expect(last).toBeLessThan(12);
  expect(store.steps.at(-1)?.metrics["eval/validation/reward"]).toBe(1);
  expect(store.checkpoints.at(-1)).toMatchObject({ step: last, isBest: true, isLast: true, reward: 1 });
  const message = expect.stringMatching(
    /^Stopping early, as configured: The validation of step \d+ has the reward 1;/,
  );
  expect(store.logs.at(-1)?.message).toEqual(message);

  const again = await live(store, { config });
  expect(again.result).toEqual({ status: "finished" });
  expect(again.server.requests).toEqual([]);
  expect(store.steps.at(-1)?.step).toBe(last);
  expect(store.logs.at(-1)?.message).toEqual(message);
});

test("a trainer that cannot compute at the temperature of the rollouts says so before there are any", async () => {
  const store = await openStore();
  const { result } = await live(store, {
    config: configOf({}, { sampling: { rollout_temperature: 0.7 } }),
    trainer: (bandit) => ({
      ...bandit,
      forward: () => Promise.reject(new Error("temperature 1 only")),
    }),
  });
  expect(result).toEqual(new Error("temperature 1 only"));
  expect(store.rollouts).toEqual([]);
});

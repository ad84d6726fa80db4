import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Bandit } from "../../test/bandit.ts";
import type { AgentContext, AgentEnd } from "../../test/rollout-server.ts";
import { agent, configOf, curveOf, live, openStore, rewardsOf } from "../../test/training-life.ts";
import type { Store } from "../../test/training-life.ts";
import { randomFrom, seedOf } from "../seed.ts";

const ASYNCHRONOUS = { asynchronous: true, max_staleness: 1 };

/** Waits as a tool does: mostly short, sometimes long, the same for the same rollout. */
async function slowAgent(context: AgentContext): Promise<AgentEnd> {
  await sleep(60 * randomFrom(seedOf(context.request.rollout_id ?? ""))() ** 4);
  return agent(context);
}

/** Takes a while for a step, as trainers do. */
function slowTrainer(bandit: Bandit): Bandit {
  return {
    ...bandit,
    async optimStep(params) {
      await sleep(30);
      return bandit.optimStep(params);
    },
  };
}

/** Updates of the steps before one. A step of which no group teaches makes none. */
function updatesBefore({ steps }: Store, step: number): number {
  return steps.filter((done) => done.step < step && done.metrics["train/updated"] === 1).length;
}

/** Updates between the oldest token of each training rollout and its step. */
function agesOf(store: Store, ofStep?: number): number[] {
  return store.rollouts
    .filter(({ phase, step }) => phase === "train" && (ofStep === undefined || step === ofStep))
    .map(({ step, weights_version_min: version }) => updatesBefore(store, step) - version);
}

test("with a staleness of 0 the curve is that of the synchronous loop, to the last bit", async () => {
  const [synchronous, asynchronous] = [await openStore(), await openStore()];
  await live(synchronous, { config: configOf({ max_steps: 6 }) });
  await live(asynchronous, {
    config: configOf({ max_steps: 6, asynchronous: true, max_staleness: 0 }),
    concurrency: 5,
    rolloutServer: { agent: slowAgent },
  });
  expect(curveOf(asynchronous)).toEqual(curveOf(synchronous));
});

test.each([1, 2])(
  "no token is more than %i updates old, some are that old, and the policy still learns",
  async (cap) => {
    const store = await openStore();
    const { result } = await live(store, {
      config: configOf({ ...ASYNCHRONOUS, max_staleness: cap }),
      trainer: slowTrainer,
      rolloutServer: { agent: slowAgent },
    });
    expect(result).toEqual({ status: "finished" });
    const ages = agesOf(store);
    expect(ages).toHaveLength(12 * 32);
    expect(Math.max(...ages)).toBe(cap);
    expect(Math.min(...ages)).toBe(0);
    for (const { step, metrics } of store.steps) {
      const own = agesOf(store, step);
      expect(metrics["rollout/staleness/max"]).toBe(Math.max(...own));
      expect(metrics["rollout/staleness/mean"]).toBeCloseTo(own.reduce((sum, age) => sum + age, 0) / 32);
    }
    expect(
      Math.max(...store.steps.map(({ metrics }) => metrics["rollout/queue_depth"] ?? 0)),
    ).toBeGreaterThan(0);
    expect(rewardsOf(store).at(-1)).toBeGreaterThan(0.7);
  },
);

test("later steps are rolled out while a step trains and is validated, and validation has the weights of its step", async () => {
  const store = await openStore();
  const { result } = await live(store, {
    config: configOf({ ...ASYNCHRONOUS, max_steps: 6 }, { checkpoints: { eval_interval: 1 } }),
    trainer: slowTrainer,
    rolloutServer: { agent: slowAgent },
  });
  expect(result).toEqual({ status: "finished" });
  const total = (key: string): number =>
    store.steps.reduce((sum, { metrics }) => sum + (metrics[key] ?? 0), 0);
  expect(total("rollout/queue_depth")).toBeGreaterThan(32);
  expect(total("perf/wait_for_batch_time")).toBeLessThan(0.8 * total("perf/rollout_time"));
  const validated = store.rollouts.filter(({ phase }) => phase === "validation");
  expect(validated).toHaveLength(6 * 4);
  for (const { step, weights_version_min: oldest, weights_version_max: newest } of validated) {
    const updates = updatesBefore(store, step + 1);
    expect([oldest, newest]).toEqual([updates, updates]);
  }
});

test("older steps go first where places are few, and no more than the places are taken", async () => {
  const store = await openStore();
  const { server } = await live(store, {
    config: configOf({ ...ASYNCHRONOUS, max_staleness: 3, max_steps: 4 }),
    concurrency: 6,
    rolloutServer: { agent: slowAgent },
  });
  expect(server.load.peak).toBe(6);
  const steps = server.requests.map(({ extra_fields: fields }) => Number(fields?.["step"]));
  expect(steps).toEqual(steps.toSorted((a, b) => a - b));
});

test("a failure in a step that is rolled out ahead ends all others, and the run, with what was done kept", async () => {
  const store = await openStore();
  const { result, server } = await live(store, {
    config: configOf({ ...ASYNCHRONOUS, max_consecutive_failures: 5 }),
    trainer: slowTrainer,
    rolloutServer: {
      agent: async (context) => {
        if (context.request.extra_fields?.["step"] === 3) throw new Error("the disk is full");
        await sleep(context.request.extra_fields?.["step"] === 4 ? 60_000 : 5, undefined, {
          signal: context.signal,
        });
        return agent(context);
      },
    },
  });
  expect(result).toEqual({
    status: "failed",
    error: expect.stringMatching(
      /^5 rollouts in a row ended with the outcome agent.*the disk is full.*What to do: /,
    ),
  });
  expect(store.steps.length).toBeLessThan(3);
  // The server was asked to end each that had no end. On a busy machine it may meet the wish before the rollout.
  const recorded = new Set(store.rollouts.map(({ rollout_id: id }) => id));
  const open = server.requests.map(({ rollout_id: id }) => id ?? "").filter((id) => !recorded.has(id));
  expect(server.cancelled).toEqual(expect.arrayContaining(open));
  expect(open.length).toBeGreaterThan(0);
});

test("a store that fails ends every step in flight, and the run rejects with the reason", async () => {
  const store = await openStore();
  const { result, server } = await live(store, {
    config: configOf({ ...ASYNCHRONOUS, max_staleness: 2 }),
    rolloutServer: { agent: slowAgent },
    dies: ({ recorded }) => recorded > 90,
  });
  expect(String(result)).toContain("kill -9");
  // Each was cancelled; what an agent waits for ends a moment later.
  await expect.poll(() => server.load.now).toBe(0);
});

test("a worker that dies is taken over: what was rolled out ahead is used, and the cap still holds", async () => {
  const store = await openStore();
  const config = configOf({ ...ASYNCHRONOUS, max_staleness: 2, max_steps: 8 });
  const lives = { config, trainer: slowTrainer, rolloutServer: { agent: slowAgent } };
  const started: string[] = [];
  let aheadAtDeath = 0;
  for (const dies of [
    ({ recorded }: { recorded: number }) => recorded >= 32 * 3 + 10,
    ({ committing }: { committing: number }) => committing === 4,
    undefined,
  ]) {
    const { result, server } = await live(store, { ...lives, ...(dies === undefined ? {} : { dies }) });
    if (dies === undefined) expect(result).toEqual({ status: "finished" });
    else expect(String(result)).toContain("kill -9");
    started.push(...server.requests.map(({ rollout_id: id }) => id ?? ""));
    const next = (store.steps.at(-1)?.step ?? 0) + 1;
    aheadAtDeath += store.rollouts.filter(({ step, phase }) => phase === "train" && step > next).length;
  }
  expect(aheadAtDeath).toBeGreaterThan(0);
  expect(Math.max(...agesOf(store))).toBeLessThanOrEqual(2);
  for (const { metrics } of store.steps) expect(metrics["rollout/staleness/max"]).toBeLessThanOrEqual(2);
  const ids = store.rollouts.map(({ rollout_id: id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  expect(store.rollouts.filter(({ phase }) => phase === "train")).toHaveLength(8 * 32);
});

test("a recorded rollout that is too old for its step is run again under an id of its own", async () => {
  const store = await openStore();
  const config = configOf({ ...ASYNCHRONOUS, max_steps: 4 });
  await live(store, { config, dies: ({ committing }) => committing === 4 });
  expect(store.steps).toHaveLength(3);
  // As if step 4 had been sampled with the weights that the run began with.
  const old = store.rollouts.filter(({ step, phase }) => step === 4 && phase === "train");
  const aged = old.map((rollout) => ({ ...rollout, weights_version_min: 0 }));
  store.rollouts = store.rollouts.map((rollout) => aged[old.indexOf(rollout)] ?? rollout);
  const { result, server } = await live(store, { config });
  expect(result).toEqual({ status: "finished" });
  expect(server.requests.map(({ rollout_id: id }) => id)).toEqual(
    expect.arrayContaining(old.map(({ rollout_id: id }) => `${id}-e1`)),
  );
  expect(store.steps.at(-1)?.metrics).toMatchObject({ "rollout/ended": 32, "rollout/staleness/max": 0 });
});

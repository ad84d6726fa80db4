import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { openBandit } from "../../test/bandit.ts";
import type { Bandit } from "../../test/bandit.ts";
import type { AgentContext, AgentEnd } from "../../test/rollout-server.ts";
import { agent, codec, configOf, live, openStore, rows } from "../../test/training-life.ts";
import type { Life, Store } from "../../test/training-life.ts";
import { randomFrom, seedOf } from "../seed.ts";
import type { Metrics } from "./metrics.ts";
import { replaySteps } from "./replay.ts";
import type { ReplayOptions } from "./replay.ts";
import { planOfStep } from "./step-plan.ts";

/** Rows that teach nothing, rollouts that fail, mostly not twice, and rollouts that take long. */
async function troublesome(context: AgentContext): Promise<AgentEnd> {
  const { rollout_id: id, metadata } = context.request;
  const chance = randomFrom(seedOf(id ?? ""))();
  await sleep(30 * chance ** 4);
  if (chance < 0.1) return { status: "failure", err_category: "timeout", err_phase: "workflow" };
  const end = await agent(context);
  return Number(metadata?.["number"]) % 3 === 0 ? { sample: { ...end.sample, reward: 0 } } : end;
}

/** The bandit refuses what it never sampled, so it samples each prompt first. */
async function openPolicy(): Promise<Bandit> {
  const policy = openBandit(codec);
  for (const question of ["Even?", "Odd?"]) {
    const prompt = `<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n`;
    await policy.sample({
      conversation: "first",
      prompt_T: codec.encode(prompt),
      maxTokens: 2,
      temperature: 1,
      topP: 1,
      stopTokens: codec.stopTokens,
      seed: 0,
    });
  }
  return policy;
}

async function replayed(
  store: Store,
  config: ReplayOptions["config"],
  { from, to, ...more }: { from: number; to: number } & Partial<ReplayOptions>,
): Promise<Map<number, Metrics>> {
  const model = await openPolicy();
  if (from > 0) await model.loadState(join(store.folder, `state-${from}`));
  const found = new Map<number, Metrics>();
  await replaySteps({
    config,
    model,
    rowCount: rows.length,
    totalSteps: config.advanced.max_steps ?? 0,
    from,
    to,
    // A stored order is one of arrival.
    rolloutsOf: async (step) => store.rollouts.filter((one) => one.phase === "train" && one.step === step),
    replayed: async (step, metrics) => void found.set(step, metrics),
    log: () => {},
    signal: new AbortController().signal,
    ...more,
  });
  return found;
}

function recorded(store: Store, from: number, to: number): Map<number, Metrics> {
  return new Map(
    store.steps
      .filter(({ step }) => step > from && step <= to)
      .map(({ step, metrics }) => [
        step,
        Object.fromEntries(Object.entries(metrics).filter(([key]) => key.startsWith("train/"))),
      ]),
  );
}

const DYNAMIC = { dynamic_sampling: true, dynamic_sampling_cap: 2 };
const cases: readonly (readonly [string, object, Life])[] = [
  ["a plain run", {}, {}],
  ["replaced groups", DYNAMIC, { rolloutServer: { agent: troublesome } }],
  [
    "failed rollouts that were run again",
    { ...DYNAMIC, group_policy: "retry" },
    { rolloutServer: { agent: troublesome } },
  ],
  [
    "an asynchronous run",
    { ...DYNAMIC, asynchronous: true, max_staleness: 2, group_policy: "drop" },
    { rolloutServer: { agent: troublesome } },
  ],
  [
    "other algorithms",
    { advantage: "rloo", loss: "gspo", aggregation: "sequence_mean", lr_schedule: "cosine", warmup_steps: 3 },
    {},
  ],
];

test.each(cases)("%s is repeated to the last bit, though its worker died", async (_, advanced, life) => {
  const config = configOf({ max_steps: 8, ...advanced });
  const store = await openStore();
  let deaths = 0;
  const dies = ({ recorded: count }: { recorded: number }): boolean => {
    if (deaths > 0 || count < 100) return false;
    deaths += 1;
    return true;
  };
  await live(store, { config, ...life, dies });
  expect(deaths).toBe(1);
  const { result } = await live(store, { config, ...life });
  expect(result).toEqual({ status: "finished" });
  const isRetried = "group_policy" in advanced && advanced.group_policy === "retry";
  const repeats = store.rollouts.filter(({ rollout_id: id }) => /-e\d+/.test(id));
  if (isRetried) expect(repeats.some(({ outcome }) => outcome === "ok")).toBe(true);

  expect(await replayed(store, config, { from: 0, to: 8 })).toEqual(recorded(store, 0, 8));
  expect(await replayed(store, config, { from: 5, to: 7 })).toEqual(recorded(store, 5, 7));
});

test("only the last step is repeated with other settings", async () => {
  const config = configOf({ max_steps: 4 });
  const store = await openStore();
  await live(store, { config });
  const other = configOf({ max_steps: 4, loss: "cispo" });
  const found = await replayed(store, config, { from: 0, to: 3, lastConfig: other });
  const before = recorded(store, 0, 3);
  expect([found.get(1), found.get(2)]).toEqual([before.get(1), before.get(2)]);
  expect(found.get(3)?.["train/tokens"]).toBe(before.get(3)?.["train/tokens"]);
  expect(found.get(3)?.["train/loss"]).not.toBe(before.get(3)?.["train/loss"]);
});

test("a replay ends between two steps when it is told to", async () => {
  const config = configOf({ max_steps: 3 });
  const store = await openStore();
  await live(store, { config });
  const ending = new AbortController();
  const seen: number[] = [];
  const replay = replayed(store, config, {
    from: 0,
    to: 3,
    signal: ending.signal,
    async replayed(step) {
      seen.push(step);
      ending.abort(new Error("enough"));
    },
  });
  await expect(replay).rejects.toThrow("enough");
  expect(seen).toEqual([1]);
});

test("replacements that an earlier life rolled out, and the last one did not need, are not trained on", async () => {
  const config = configOf({ max_steps: 3, ...DYNAMIC });
  const store = await openStore();
  await live(store, { config });
  const ofStep = store.rollouts.filter(({ phase, step }) => phase === "train" && step === 2);
  const rolledOut = new Set(ofStep.map(({ row_index }) => row_index));
  const [unused] = planOfStep(config, rows, 2).refill_P.filter(
    ([task]) => task !== undefined && !rolledOut.has(task.row.row_index),
  );
  const model = ofStep[0];
  if (unused === undefined || model === undefined) throw new Error("every row was rolled out");
  const extra = unused.map(({ row, sampleIndex }) => ({
    ...model,
    rollout_id: `extra-${sampleIndex}`,
    row_index: row.row_index,
    sample_index: sampleIndex,
    reward: sampleIndex % 2,
  }));
  store.rollouts.push(...extra);
  expect(await replayed(store, config, { from: 0, to: 3 })).toEqual(recorded(store, 0, 3));
});

test("a rollout that was run again because its weights were too old, and failed, does not count as it was before", async () => {
  const config = configOf({ max_steps: 3 });
  const store = await openStore();
  const agentFails = async (context: AgentContext): Promise<AgentEnd> =>
    context.request.rollout_id?.endsWith("n0") === true
      ? { status: "failure", err_category: "agent_error", err_phase: "workflow" }
      : agent(context);
  await live(store, { config, rolloutServer: { agent: agentFails } });
  const failed = store.rollouts.filter(({ outcome }) => outcome === "agent");
  const [scored] = store.rollouts.filter(({ outcome }) => outcome === "ok");
  if (scored === undefined) throw new Error("no rollout has a reward");
  const tooOld = failed.map((one) => ({
    ...scored,
    rollout_id: `${one.rollout_id}-old`,
    row_index: one.row_index,
    sample_index: one.sample_index,
    step: one.step,
  }));
  expect(tooOld.length).toBeGreaterThan(0);
  store.rollouts.unshift(...tooOld);
  expect(await replayed(store, config, { from: 0, to: 3 })).toEqual(recorded(store, 0, 3));
});

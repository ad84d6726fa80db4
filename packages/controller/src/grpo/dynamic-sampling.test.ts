import { expect, test } from "vitest";
import type { AgentContext, AgentEnd } from "../../test/rollout-server.ts";
import { agent, configOf, curveOf, live, openStore, rows } from "../../test/training-life.ts";
import { recordOf } from "../../test/records.ts";
import { nextGroups, planOfStep, teaches, trainedGroups } from "./step-plan.ts";

const SELECTING = { dynamic_sampling: true, dynamic_sampling_cap: 2, max_steps: 3 };

/** Every third row teaches nothing: its rewards are all 0. */
async function partlyHopeless(context: AgentContext): Promise<AgentEnd> {
  const end = await agent(context);
  const hopeless = Number(context.request.metadata?.["number"]) % 3 === 0;
  return hopeless ? { sample: { ...end.sample, reward: 0 } } : end;
}

const group = (...rewards: (number | null)[]) =>
  rewards.map((reward) => recordOf({ reward, outcome: reward === null ? "timeout" : "ok" }));

test("replacements are other training rows, in an order that the step and the seed alone decide", () => {
  const config = configOf(SELECTING);
  const plans = [1, 2, 2].map((step) => planOfStep(config, rows, step));
  const rowsOf = (plan: (typeof plans)[number]) => plan.refill_P.map(([task]) => task?.row.row_index ?? -1);
  for (const plan of plans) {
    const first = plan.first_P.map(([task]) => task?.row.row_index ?? -1);
    expect(first).toHaveLength(4);
    // 20 rows: 4 are held out, 4 are in the step.
    expect(new Set([...first, ...rowsOf(plan)]).size).toBe(16);
    expect(Math.min(...rowsOf(plan))).toBeGreaterThanOrEqual(4);
  }
  const [one, two, again] = plans.map(rowsOf);
  expect(two).toEqual(again);
  expect(one).not.toEqual(two);
});

test("as many groups are asked for as do not teach, until the cap", () => {
  const config = configOf(SELECTING);
  const plan = planOfStep(config, rows, 1);
  const rolled_P = [group(0, 1), group(1, 1), group(0, null), group(0, 1)];
  expect(nextGroups(plan, rolled_P, config)).toEqual(plan.refill_P.slice(0, 2));
  rolled_P.push(group(0, 0), group(0, 1));
  expect(nextGroups(plan, rolled_P, config)).toEqual(plan.refill_P.slice(2, 3));
  rolled_P.push(group(0, 0));
  expect(nextGroups(plan, rolled_P, config)).toEqual(plan.refill_P.slice(3, 4));
  rolled_P.push(group(0, 0));
  expect(nextGroups(plan, rolled_P, config)).toEqual([]);
  expect(trainedGroups(rolled_P, config)).toEqual([rolled_P[0], rolled_P[3], rolled_P[5]]);
});

test("where single tokens teach, every group does, and none is replaced", () => {
  const config = configOf({ ...SELECTING, teacher_model: "large" });
  expect(planOfStep(config, rows, 1).refill_P).toEqual([]);
  expect(teaches(group(1, 1), config)).toBe(false);
  expect(trainedGroups([group(1, 1)], config)).toHaveLength(1);
});

test("groups that teach nothing are replaced and counted, and the curves stay those of the step's own prompts", async () => {
  const [plain, selecting] = [await openStore(), await openStore()];
  const rolloutServer = { agent: partlyHopeless };
  await live(plain, {
    config: configOf({ ...SELECTING, dynamic_sampling: false, max_steps: 1 }),
    rolloutServer,
  });
  const { result } = await live(selecting, { config: configOf(SELECTING), rolloutServer });
  expect(result).toEqual({ status: "finished" });

  const [first] = selecting.steps;
  const [unselected] = plain.steps;
  if (first === undefined || unselected === undefined) throw new Error("a step each");
  for (const key of ["rollout/raw_reward", "rollout/pass_rate", "rollout/n", "rollout/group/all_same"]) {
    expect([key, first.metrics[key]]).toEqual([key, unselected.metrics[key]]);
  }
  for (const { metrics, examples } of selecting.steps) {
    const refills = metrics["rollout/refill/groups"] ?? 0;
    const selected = metrics["rollout/selected/groups"] ?? 0;
    if (metrics["rollout/refill/cap_reached"] === 1) expect(selected).toBeLessThan(4);
    else expect(selected).toBe(4);
    expect(metrics["rollout/dropped/all_same"]).toBe(4 + refills - selected);
    expect(metrics["rollout/ended"]).toBe(8 * (4 + refills));
    expect(examples).toBe(8 * (4 + refills));
    expect(metrics["train/groups_left_out"]).toBe(0);
    expect(metrics["train/sequences"]).toBe(8 * selected);
  }
  expect(selecting.steps.some(({ metrics }) => (metrics["rollout/refill/groups"] ?? 0) > 0)).toBe(true);
});

test("a worker that dies while groups are replaced is taken over with the identical curve", async () => {
  const config = configOf(SELECTING);
  const rolloutServer = { agent: partlyHopeless };
  const [whole, store] = [await openStore(), await openStore()];
  await live(whole, { config, rolloutServer });
  const refilled = whole.rollouts.filter(({ step, phase }) => step === 1 && phase === "train").length;
  expect(refilled).toBeGreaterThan(32);
  await live(store, { config, rolloutServer, dies: ({ recorded }) => recorded > 34 });
  expect(store.rollouts.length).toBeGreaterThan(32);
  await live(store, { config, rolloutServer });
  expect(curveOf(store)).toEqual(curveOf(whole));
});

test("rows whose prompt is held out are neither trained on nor taken as replacements", async () => {
  const store = await openStore();
  // Rows 4 to 7 are the held-out rows once more.
  const leaking = rows.map((row) =>
    row.row_index >= 4 && row.row_index < 8
      ? { ...row, metadata: rows[row.row_index - 4]?.metadata ?? null }
      : row,
  );
  const { result } = await live(store, { rows: leaking, config: configOf({ ...SELECTING, max_steps: 8 }) });
  expect(result).toEqual({ status: "finished" });
  const trained = store.rollouts.filter(({ phase }) => phase === "train").map(({ row_index }) => row_index);
  expect(Math.min(...trained)).toBe(8);
  expect(store.logs.map(({ message }) => message)).toContainEqual(
    expect.stringMatching(/^4 rows have the prompt of a held-out row, and are not trained on: 4, 5, 6, 7\./),
  );
});

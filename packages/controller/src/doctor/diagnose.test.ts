import { TrainingRunConfig } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { ADVICE } from "./advice.ts";
import { ALARMS } from "./alarms.ts";
import { diagnose } from "./diagnose.ts";
import type { CommittedStep, RunHistory } from "./run-history.ts";

const NOW = Date.parse("2030-01-01T12:00:00Z");
const seconds = (count: number): number => NOW - count * 1000;

function configOf(advanced: object = {}, training: object = {}): TrainingRunConfig {
  return TrainingRunConfig.parse({
    experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
    training: { rollout_batch_size: 16, n_samples_per_prompt: 8, ...training },
    advanced,
  });
}

/** What a step of a run that learns commits. */
const healthy = (step: number): Record<string, number> => ({
  "rollout/raw_reward": 0.2 + 0.02 * step,
  "rollout/pass_rate": 0.2 + 0.02 * step,
  "rollout/scored": 128,
  "rollout/outcome/ok": 128,
  "rollout/group/all_same": 0.2,
  "rollout/group/all_good": 0.1,
  "rollout/group/all_bad": 0.1,
  "rollout/truncated_ratio": 0.01,
  "rollout/staleness/mean": 0,
  "train/entropy_loss": 0.5,
  "train/train_rollout_kl": 1e-5,
  "train/pg_clipfrac": 0.02,
  "train/grad_norm": 0.5,
  "train/updated": 1,
  "perf/step_time": 30,
  "perf/rollout_time": 12,
});

type Change = Record<string, number> | ((step: number) => Record<string, number>);

/** Steps that were committed half a minute after each other, the last one a moment ago. */
function stepsOf(count: number, change: Change = {}): CommittedStep[] {
  return Array.from({ length: count }, (_, index) => ({
    step: index + 1,
    committedAt: seconds(10 + (count - 1 - index) * 30),
    metrics: {
      ...healthy(index + 1),
      ...(typeof change === "function" ? change(index + 1) : change),
    },
  }));
}

function runOf(more: Partial<RunHistory> = {}): RunHistory {
  return {
    status: "running",
    error: null,
    now: NOW,
    createdAt: seconds(7000),
    startedAt: seconds(7000),
    heartbeatAt: seconds(3),
    leaseSeconds: 30,
    attempts: 1,
    config: configOf(),
    steps: stepsOf(25),
    open: { rollouts: 4, rewarded: 4, newestAt: seconds(1) },
    recent: { ok: 400 },
    examples: {
      timeout: [{ id: "late", step: 3, outcome: "timeout" }],
      agent: [{ id: "broken", step: 4, outcome: "agent" }],
      truncated: [{ id: "long", step: 5, outcome: "truncated" }],
    },
    neverPassed: [
      { row: 17, rollouts: 24, example: { id: "same-again", step: 25, outcome: "ok" } },
      { row: 203, rollouts: 8, example: { id: "as-ever", step: 24, outcome: "ok" } },
    ],
    ...more,
  };
}

const rulesOf = (history: RunHistory): string[] => diagnose(history).findings.map(({ rule }) => rule);

test("a run that learns has no finding", () => {
  expect(diagnose(runOf()).findings).toEqual([]);
  expect(diagnose(runOf()).rules).toHaveLength(ALARMS.length + ADVICE.length);
});

/** Name of the rule, a history in which it speaks, and one on the other side of its threshold. */
const CASES: readonly (readonly [rule: string, sick: Partial<RunHistory>, well: Partial<RunHistory>])[] = [
  ["run_failed", { status: "crashed", error: "Too little memory." }, { status: "stopped" }],
  [
    "no_worker",
    { status: "pending", createdAt: seconds(121), heartbeatAt: null, startedAt: null, steps: [] },
    { status: "pending", createdAt: seconds(119), heartbeatAt: null, startedAt: null, steps: [] },
  ],
  ["no_heartbeat", { heartbeatAt: seconds(61) }, { heartbeatAt: seconds(59) }],
  // Five hundred seconds a step: six medians are 3,000 s.
  ["stalled_step", openFor(3001, 500), openFor(2999, 500)],
  // Six medians of ten seconds are a minute, but the alarm waits for half an hour.
  ["stalled_step", openFor(1801, 10), openFor(1799, 10)],
  ["stalled_step", openFor(9000, 10, 3), openFor(9000, 10, 2)],
  ["worker_lost", { attempts: 4 }, { attempts: 3 }],
  ["aborted_rollouts", { recent: { ok: 94, timeout: 5, lost: 1 } }, { recent: { ok: 95, timeout: 5 } }],
  ["aborted_rollouts", { recent: { ok: 80, timeout: 20 } }, { recent: { ok: 79, timeout: 20 } }],
  [
    "errored_rollouts",
    { steps: stepsOf(25, { "rollout/outcome/ok": 94, "rollout/outcome/agent": 6 }) },
    { steps: stepsOf(25, { "rollout/outcome/ok": 95, "rollout/outcome/agent": 5 }) },
  ],
  [
    "errored_rollouts",
    { steps: [], recent: { ok: 20, agent: 20 } },
    { steps: [], recent: { ok: 20, agent: 19 } },
  ],
  ["skipped_updates", { steps: updatesLeftOut(5) }, { steps: updatesLeftOut(4) }],
  [
    "no_reward",
    { open: { rollouts: 16, rewarded: 0, newestAt: NOW } },
    { open: { rollouts: 15, rewarded: 0, newestAt: NOW } },
  ],
  [
    "no_reward",
    { steps: stepsOf(25, { "rollout/scored": 0 }) },
    { steps: stepsOf(25, { "rollout/scored": 1 }) },
  ],
  ["stuck_rows", stuckAt({}), stuckAt({ "train/entropy_loss": 0.051 })],
  ["stuck_rows", stuckAt({ "rollout/group/all_bad": 0.051 }), stuckAt({ "rollout/group/all_bad": 0.049 })],
  ["stuck_rows", stuckAt({ "rollout/pass_rate": 0.949 }), stuckAt({ "rollout/pass_rate": 0.951 })],
  ["too_easy", groups({ all_good: 0.51 }), groups({ all_good: 0.5 })],
  ["too_hard", groups({ all_bad: 0.51 }), groups({ all_bad: 0.5 })],
  ["zero_signal_groups", groups({ all_same: 0.51 }), groups({ all_same: 0.5 })],
  [
    "truncated_rollouts",
    { steps: stepsOf(25, { "rollout/truncated_ratio": 0.26 }) },
    { steps: stepsOf(25, { "rollout/truncated_ratio": 0.25 }) },
  ],
  [
    "entropy_collapse",
    { steps: stepsOf(25, (step) => ({ "train/entropy_loss": step < 20 ? 0.5 : 0.049 })) },
    { steps: stepsOf(25, (step) => ({ "train/entropy_loss": step < 20 ? 0.5 : 0.051 })) },
  ],
  [
    "sampler_trainer_kl",
    { steps: stepsOf(25, { "train/train_rollout_kl": 0.011 }) },
    { steps: stepsOf(25, { "train/train_rollout_kl": 0.009 }) },
  ],
  [
    "clip_fraction",
    { steps: stepsOf(25, { "train/pg_clipfrac": 0.31 }) },
    { steps: stepsOf(25, { "train/pg_clipfrac": 0.29 }) },
  ],
  [
    "staleness_at_cap",
    {
      config: configOf({ asynchronous: true, max_staleness: 4 }),
      steps: stepsOf(25, { "rollout/staleness/mean": 3.61 }),
    },
    {
      config: configOf({ asynchronous: true, max_staleness: 4 }),
      steps: stepsOf(25, { "rollout/staleness/mean": 3.59 }),
    },
  ],
  [
    "waiting_for_rollouts",
    { steps: stepsOf(25, { "perf/rollout_time": 24.1 }) },
    { steps: stepsOf(25, { "perf/rollout_time": 23.9 }) },
  ],
  [
    "waiting_for_rollouts",
    { config: configOf({ asynchronous: true }), steps: stepsOf(25, { "perf/wait_for_batch_time": 15.1 }) },
    { config: configOf({ asynchronous: true }), steps: stepsOf(25, { "perf/wait_for_batch_time": 14.9 }) },
  ],
  ["reward_flat", { steps: risingBy(0.001) }, { steps: risingBy(0.02) }],
  ["reward_flat", { steps: risingBy(0).slice(0, 20) }, { steps: risingBy(0).slice(0, 19) }],
  [
    "validation_falls",
    { steps: validatedAs([0.5, 0.9, 0.6, 0.6]) },
    { steps: validatedAs([0.5, 0.9, 0.6, 0.8]) },
  ],
  [
    "validation_falls",
    { steps: validatedAs([0.5, 0.9, 0.7, 0.6]) },
    { steps: validatedAs([0.5, 0.6, 0.9, 0.6]) },
  ],
  [
    "gradient_clipped",
    { steps: stepsOf(25, { "train/grad_norm": 1.01 }) },
    { steps: stepsOf(25, (step) => ({ "train/grad_norm": step === 16 ? 1 : 1.01 })) },
  ],
  [
    "small_batch",
    { config: configOf({}, { rollout_batch_size: 7 }) },
    { config: configOf({}, { rollout_batch_size: 8 }) },
  ],
  [
    "small_batch",
    { config: configOf({}, { n_samples_per_prompt: 7 }) },
    { config: configOf({}, { n_samples_per_prompt: 8 }) },
  ],
];

test.each(CASES)("%s speaks on one side of its threshold only", (rule, sick, well) => {
  expect(rulesOf(runOf(sick))).toContain(rule);
  expect(rulesOf(runOf(well))).not.toContain(rule);
});

test("each rule has a case", () => {
  const names = [...ALARMS, ...ADVICE].map(({ name }) => name);
  expect(new Set(CASES.map(([rule]) => rule))).toEqual(new Set(names));
  expect(new Set(names).size).toBe(names.length);
});

test("a finding names its numbers, its steps and the rollouts to read", () => {
  const steps = stepsOf(25, { "rollout/outcome/ok": 96, "rollout/outcome/agent": 32 });
  expect(diagnose(runOf({ steps })).findings).toEqual([
    {
      severity: "alarm",
      rule: "errored_rollouts",
      title: "Many rollouts fail",
      evidence: "160 of 640 rollouts (25.0 %) have no reward: 160 agent (alarm above 5.0 %).",
      values: { errored: 160, rollouts: 640, share: 0.25 },
      steps: { first: 21, last: 25 },
      what_to_do: expect.stringContaining("agent and grader"),
      rollouts: [{ id: "broken", step: 4, outcome: "agent" }],
    },
  ]);
});

test("while there is an alarm no advice is given, and its rules are not among those that were asked", () => {
  const sick = runOf({ heartbeatAt: null, startedAt: seconds(300), ...groups({ all_bad: 0.9 }) });
  const { findings, rules } = diagnose(sick);
  expect(findings.map(({ rule }) => rule)).toEqual(["no_heartbeat"]);
  expect(rules).not.toContain("too_hard");
  expect(rulesOf(runOf(groups({ all_bad: 0.9 })))).toEqual(["too_hard"]);
});

test("a run that has ended is not alive, and need not be", () => {
  const ended = { status: "finished", heartbeatAt: null, startedAt: seconds(90_000) } as const;
  const steps = stepsOf(25).map((one) => ({ ...one, committedAt: one.committedAt - 86_400_000 }));
  expect(rulesOf(runOf({ ...ended, steps }))).toEqual([]);
});

test("a policy that has learned its task is not told to explore, to rise or to change", () => {
  const steps = stepsOf(25, (step) => ({
    "rollout/pass_rate": 0.99,
    "rollout/raw_reward": 0.99,
    "train/entropy_loss": step < 10 ? 0.5 : 0.001,
    "train/updated": step < 20 ? 1 : 0,
  }));
  expect(rulesOf(runOf({ steps }))).toEqual([]);
});

test("a policy that is stuck is told to stop or go back, with rows to read, and neither that rows are easy nor to raise lr", () => {
  // Entropy was never high, so that it fell is no finding.
  const { findings } = diagnose(runOf(stuckAt({})));
  expect(findings).toEqual([
    {
      severity: "advice",
      rule: "stuck_rows",
      title: expect.stringContaining("stuck"),
      evidence: expect.stringMatching(
        /^14\.0 % of the groups pass with no rollout .* 74\.0 % with every one, while entropy is 0\.049 .*Rows that no rollout passed: 17 \(24 rollouts\), 203 \(8 rollouts\)\.$/,
      ),
      values: {
        all_bad: expect.closeTo(0.14),
        all_good: expect.closeTo(0.74),
        all_same: expect.closeTo(0.95),
        entropy: expect.closeTo(0.049),
      },
      steps: { first: 16, last: 25 },
      what_to_do: expect.stringMatching(
        /Stop here and take the best checkpoint.*entropy_coef, kl_coef or a lower lr/,
      ),
      rollouts: [
        { id: "same-again", step: 25, outcome: "ok" },
        { id: "as-ever", step: 24, outcome: "ok" },
      ],
    },
  ]);
  // The same rewards of a policy that still explores.
  expect(rulesOf(runOf(stuckAt({ "train/entropy_loss": 0.3 })))).toEqual(["too_easy", "reward_flat"]);
});

test("a run without a step has nothing to tune", () => {
  const waiting = runOf({ steps: [], config: configOf({}, { n_samples_per_prompt: 2 }) });
  expect(diagnose(waiting)).toEqual({ findings: [], rules: ALARMS.map(({ name }) => name) });
});

/** The step under way is open for so long; each before it took `usual` seconds. */
function openFor(open: number, usual: number, count = 5): Partial<RunHistory> {
  return {
    startedAt: seconds(1e5),
    steps: stepsOf(count, { "perf/step_time": usual }).map((one) => ({
      ...one,
      committedAt: seconds(open + (count - one.step) * usual),
    })),
  };
}

function updatesLeftOut(count: number): CommittedStep[] {
  return stepsOf(25, (step) => (step > 25 - count ? { "train/updated": 0 } : {}));
}

function groups(shares: Record<string, number>): Partial<RunHistory> {
  const metrics = Object.entries(shares).map(([kind, share]) => [`rollout/group/${kind}`, share]);
  return { steps: stepsOf(25, Object.fromEntries(metrics)) };
}

/** Steps of a policy that passes most rows always, some never, and does the same each time. */
function stuckAt(change: Record<string, number>): Partial<RunHistory> {
  const metrics = {
    "rollout/pass_rate": 0.8,
    "rollout/group/all_same": 0.95,
    "rollout/group/all_good": 0.74,
    "rollout/group/all_bad": 0.14,
    "train/entropy_loss": 0.049,
    ...change,
  };
  return {
    steps: stepsOf(25, (step) => ({ ...metrics, "rollout/raw_reward": 0.8 + 0.1 * Math.sin(7 * step) })),
  };
}

/** A reward that rises so much a step, with a noise of a tenth. */
function risingBy(slope: number): CommittedStep[] {
  return stepsOf(25, (step) => ({ "rollout/raw_reward": 0.3 + slope * step + 0.1 * Math.sin(7 * step) }));
}

/** One validation every five steps, on 100 rows. */
function validatedAs(rates: readonly number[]): CommittedStep[] {
  return stepsOf(rates.length * 5, (step): Record<string, number> => {
    const rate = rates[step / 5 - 1];
    return rate === undefined ? {} : { "eval/validation/pass_rate": rate, "eval/validation/n": 100 };
  });
}

import type { Finding, OutcomeCounts, RolloutOutcome } from "@osmosis/protocol";
import {
  hasLearned,
  lastSteps,
  median,
  newest,
  percent,
  span,
  type Rule,
  type RunHistory,
} from "./run-history.ts";
import * as limits from "./thresholds.ts";

/** Rules that tell a sick run, in the order in which a person should read them. */
export const ALARMS: readonly Rule[] = [
  {
    name: "run_failed",
    check({ status, error, steps }) {
      if (status !== "failed" && status !== "crashed") return undefined;
      return {
        title: `The run has ${status}`,
        evidence: `${error ?? "It gave no reason."} ${committed(steps)} steps are committed.`,
        values: { committed_steps: committed(steps) },
        steps: null,
        what_to_do:
          "Read the end of its log, remove the cause, and submit it again. Its checkpoints are models that stay.",
        rollouts: [],
      };
    },
  },
  {
    name: "no_worker",
    check({ status, now, createdAt }) {
      const waited = (now - createdAt) / 1000;
      if (status !== "pending" || waited <= limits.UNCLAIMED_SECONDS) return undefined;
      return {
        title: "No worker takes the run",
        evidence: `It has waited for ${span(waited)}; a free worker takes a run within seconds.`,
        values: { waited_seconds: waited },
        steps: null,
        what_to_do:
          "Is another run under way? Then wait, or start one more worker. Otherwise look whether a worker runs at all.",
        rollouts: [],
      };
    },
  },
  {
    name: "no_heartbeat",
    check({ status, now, heartbeatAt, startedAt, createdAt, leaseSeconds }) {
      const silent = (now - (heartbeatAt ?? startedAt ?? createdAt)) / 1000;
      if (status !== "running" || silent <= limits.SILENT_LEASES * leaseSeconds) return undefined;
      return {
        title: "No worker holds the run",
        evidence: `The last heartbeat came ${span(silent)} ago; one is due every few seconds.`,
        values: { silent_seconds: silent },
        steps: null,
        what_to_do:
          "Its worker died or was cut off. Start a worker: it goes on after the last committed step.",
        rollouts: [],
      };
    },
  },
  { name: "stalled_step", check: stalledStep },
  {
    name: "worker_lost",
    check({ attempts, steps }) {
      const lost = attempts - 1;
      if (lost < limits.LOST_WORKERS) return undefined;
      return {
        title: `The run has lost its worker ${lost} times`,
        evidence: `It was handed out ${attempts} times and has ${committed(steps)} committed steps; a healthy run is handed out once.`,
        values: { attempts, committed_steps: committed(steps) },
        steps: null,
        what_to_do:
          "Look in the log for what happened before each hand-over. The usual cause is too little memory.",
        rollouts: [],
      };
    },
  },
  { name: "aborted_rollouts", check: abortedRollouts },
  { name: "errored_rollouts", check: erroredRollouts },
  {
    name: "skipped_updates",
    check(history) {
      const updated = newest(history, "train/updated", limits.SKIPPED_UPDATES);
      if (updated.length < limits.SKIPPED_UPDATES || updated.some((one) => one !== 0)) return undefined;
      if (hasLearned(history)) return undefined;
      let skipped = 0;
      for (const { metrics } of history.steps.toReversed()) {
        if (metrics["train/updated"] !== 0) break;
        skipped += 1;
      }
      return {
        title: "The weights do not change any more",
        evidence: `The last ${skipped} steps made no update (alarm from ${limits.SKIPPED_UPDATES} in a row).`,
        values: { skipped },
        steps: lastSteps(history, skipped),
        what_to_do:
          "Either no group has different rewards (see rollout/group/all_good and all_bad: rows too easy or too hard, or a grader that always says the same), or the workflow never calls the model (see rollout/empty), or gradients are not finite (see the log).",
        rollouts: [],
      };
    },
  },
  {
    name: "no_reward",
    check(history) {
      const { open, steps, examples } = history;
      const last = steps.at(-1);
      const lastHasNone = last?.metrics["rollout/scored"] === 0;
      const openHasNone = open.rollouts >= limits.UNREWARDED_ROLLOUTS && open.rewarded === 0;
      if (!lastHasNone && !openHasNone) return undefined;
      return {
        title: "No rollout gets a reward",
        evidence: openHasNone
          ? `${open.rollouts} rollouts of the step under way have ended, none with a reward.`
          : `None of the rollouts of step ${last?.step ?? 0} has a reward.`,
        values: { open_rollouts: open.rollouts, open_rewarded: open.rewarded },
        steps: openHasNone ? null : lastSteps(history, 1),
        what_to_do:
          "Read what the failed rollouts say: agent or grader fail for every row, or the model endpoint does.",
        rollouts: Object.entries(examples)
          .flatMap(([outcome, some]) => (scored(outcome) ? [] : some))
          .slice(0, 5),
      };
    },
  },
];

function committed(steps: RunHistory["steps"]): number {
  return steps.at(-1)?.step ?? 0;
}

/** The step under way, measured by the steps that are done; only the worker knows in which of its phases it is. */
function stalledStep(history: RunHistory): ReturnType<Rule["check"]> {
  const { status, now, steps, startedAt, open } = history;
  if (status !== "running" || steps.length < limits.STALLED_LEAST_SAMPLES) return undefined;
  const durations = newest(history, "perf/step_time", steps.length);
  const usual = durations.length < limits.STALLED_LEAST_SAMPLES ? Number.NaN : median(durations);
  const since = Math.max(steps.at(-1)?.committedAt ?? 0, startedAt ?? 0);
  const seconds = (now - since) / 1000;
  if (!(seconds > limits.STALLED_MEDIANS * usual && seconds > limits.STALLED_SECONDS)) return undefined;
  const quiet =
    open.newestAt === null
      ? "none of its rollouts has ended"
      : `its newest rollout ended ${span((now - open.newestAt) / 1000)} ago`;
  return {
    title: "The step under way is stalled",
    evidence: `It is open for ${span(seconds)}, ${(seconds / usual).toFixed(0)} times the median of ${span(usual)} (alarm above ${limits.STALLED_MEDIANS} times and ${span(limits.STALLED_SECONDS)}); ${open.rollouts} rollouts of it are recorded, ${quiet}.`,
    values: { open_seconds: seconds, median_seconds: usual, open_rollouts: open.rollouts },
    steps: null,
    what_to_do:
      "If rollouts are missing, a tool or model call hangs: see the log, and lower agent_workflow_timeout_s. If they are all there, the trainer hangs: restart its worker; the step's rollouts are kept.",
    rollouts: [],
  };
}

const ABORTED: readonly RolloutOutcome[] = ["timeout", "cancelled", "lost"];

function abortedRollouts({ status, recent, examples }: RunHistory): ReturnType<Rule["check"]> {
  if (status !== "running") return undefined;
  const all = total(recent);
  const aborted = ABORTED.reduce((sum, outcome) => sum + (recent[outcome] ?? 0), 0);
  if (all < limits.ABORTED_LEAST || aborted <= limits.ABORTED_SHARE * all) return undefined;
  return {
    title: "Many rollouts are cut off before they end",
    evidence: `${aborted} of ${all} rollouts (${percent(aborted / all)}) of the last ${limits.ABORTED_MINUTES} minutes: ${listed(recent, ABORTED)} (alarm above ${percent(limits.ABORTED_SHARE)}).`,
    values: { aborted, rollouts: all, share: aborted / all },
    steps: null,
    what_to_do:
      "timeout: a call hangs, or agent_workflow_timeout_s is too short for the work. lost: the rollout server dies or answers too late, often for lack of memory.",
    rollouts: ABORTED.flatMap((outcome) => examples[outcome] ?? []).slice(0, 5),
  };
}

function erroredRollouts(history: RunHistory): ReturnType<Rule["check"]> {
  const steps = history.steps.slice(-limits.ERRORED_STEPS);
  const counts: Record<string, number> = {};
  for (const { metrics } of steps) {
    for (const [key, value] of Object.entries(metrics)) {
      const outcome = /^rollout\/outcome\/(\w+)$/.exec(key)?.[1];
      if (outcome !== undefined) counts[outcome] = (counts[outcome] ?? 0) + value;
    }
  }
  const seen = steps.length === 0 ? history.recent : counts;
  const failed = Object.keys(seen).filter((outcome) => !scored(outcome) && outcome !== "cancelled");
  const errored = failed.reduce((sum, outcome) => sum + (entry(seen, outcome) ?? 0), 0);
  const all = total(seen) - (entry(seen, "cancelled") ?? 0);
  if (all < limits.ERRORED_LEAST || errored <= limits.ERRORED_SHARE * all) return undefined;
  return {
    title: "Many rollouts fail",
    evidence: `${errored} of ${all} rollouts (${percent(errored / all)}) have no reward: ${listed(seen, failed)} (alarm above ${percent(limits.ERRORED_SHARE)}).`,
    values: { errored, rollouts: all, share: errored / all },
    steps: lastSteps(history, limits.ERRORED_STEPS),
    what_to_do:
      "Read some of them. agent and grader are faults of the rollout's code; provider and sandbox of what it calls; the others train, but with fewer samples in their groups.",
    rollouts: failed.flatMap((outcome) => exampleOf(history, outcome)).slice(0, 5),
  };
}

function exampleOf({ examples }: RunHistory, outcome: string): Finding["rollouts"] {
  return Object.entries(examples).find(([name]) => name === outcome)?.[1] ?? [];
}

function scored(outcome: string): boolean {
  return outcome === "ok" || outcome === "truncated";
}

function entry(
  counts: OutcomeCounts | Readonly<Record<string, number>>,
  outcome: string,
): number | undefined {
  return Object.entries(counts).find(([name]) => name === outcome)?.[1];
}

function total(counts: OutcomeCounts | Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

function listed(
  counts: OutcomeCounts | Readonly<Record<string, number>>,
  outcomes: readonly string[],
): string {
  return outcomes
    .map((outcome) => ({ outcome, count: entry(counts, outcome) ?? 0 }))
    .filter(({ count }) => count > 0)
    .map(({ outcome, count }) => `${count} ${outcome}`)
    .join(", ");
}

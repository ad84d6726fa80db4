import { validationFall, slopeOf } from "./trends.ts";
import { hasLearned, lastSteps, mean, newest, percent, type Rule, type RunHistory } from "./run-history.ts";
import { stuckOn, stuckRows } from "./stuck.ts";
import * as limits from "./thresholds.ts";

/** Rules about what a healthy run learns; each is silent while there is too little to judge by. */
export const ADVICE: readonly Rule[] = [
  stuckRows,
  unlessStuck(
    highShare({
      name: "too_easy",
      key: "rollout/group/all_good",
      limit: limits.SAME_GROUPS_SHARE,
      title: "Most rows are too easy",
      what: "of the groups pass with every rollout",
      whatToDo:
        "If the pass rate is what you wanted, the run has done its work: stop it, or let early_stop_reward do so. Otherwise take out rows that the model always solves, add harder ones, or make the grader ask for more. Where dynamic_sampling is on, it replaces such groups, and rolls out up to dynamic_sampling_cap times as much.",
    }),
  ),
  highShare({
    name: "too_hard",
    key: "rollout/group/all_bad",
    limit: limits.SAME_GROUPS_SHARE,
    title: "Most rows are too hard",
    what: "of the groups pass with no rollout",
    whatToDo:
      "Add easier rows, give a part of the reward for a part of the work, more attempts (n_samples_per_prompt), or begin with a stronger model.",
  }),
  {
    name: "zero_signal_groups",
    check(history) {
      const [same, good, bad] = ["all_same", "all_good", "all_bad"].map((kind) =>
        mean(newest(history, `rollout/group/${kind}`, limits.WINDOW_STEPS)),
      );
      if (history.steps.length < limits.LEAST_STEPS || !((same ?? 0) > limits.SAME_GROUPS_SHARE))
        return undefined;
      // Then too_easy or too_hard says it, and why.
      if ((good ?? 0) > limits.SAME_GROUPS_SHARE || (bad ?? 0) > limits.SAME_GROUPS_SHARE) return undefined;
      return {
        title: "Most groups teach nothing",
        evidence: `${percent(same ?? 0)} of the groups have rewards that are all the same (advice above ${percent(limits.SAME_GROUPS_SHARE)}); ${percent(good ?? 0)} always pass, ${percent(bad ?? 0)} never do.`,
        values: { all_same: same ?? 0, all_good: good ?? 0, all_bad: bad ?? 0 },
        steps: lastSteps(history, limits.WINDOW_STEPS),
        what_to_do:
          "Larger groups (n_samples_per_prompt), a higher temperature, or a reward with finer steps make rollouts of one row differ.",
        rollouts: [],
      };
    },
  },
  highShare({
    name: "truncated_rollouts",
    key: "rollout/truncated_ratio",
    limit: limits.TRUNCATED_SHARE,
    title: "Many rollouts run out of tokens",
    what: "of the rollouts are truncated",
    whatToDo:
      "Raise max_response_length if the model's context allows it, or penalise length softly with overlong_cache.",
    outcome: "truncated",
  }),
  { name: "entropy_collapse", check: entropyCollapse },
  highShare({
    name: "sampler_trainer_kl",
    key: "train/train_rollout_kl",
    limit: limits.SAMPLER_TRAINER_KL,
    title: "Sampler and trainer disagree",
    what: "nats of divergence per sampled token",
    unit: "nats",
    whatToDo:
      'Sampling must be by the weights and the temperature that train: rollout_top_p = 1, a smaller max_staleness, a lower lr, or correction = "token_mask".',
  }),
  highShare({
    name: "clip_fraction",
    key: "train/pg_clipfrac",
    limit: limits.CLIP_FRACTION,
    title: "Much of the loss is clipped",
    what: "of the sampled tokens are clipped",
    whatToDo: "The policy has moved far from what was sampled: lower lr, or max_staleness.",
  }),
  {
    name: "staleness_at_cap",
    check(history) {
      const { asynchronous, max_staleness: cap } = history.config.advanced;
      const ages = newest(history, "rollout/staleness/mean", limits.WINDOW_STEPS);
      if (!asynchronous || cap === 0 || ages.length < limits.LEAST_STEPS) return undefined;
      const age = mean(ages);
      if (age < limits.STALENESS_OF_CAP * cap) return undefined;
      return {
        title: "Rollouts are as stale as they may be",
        evidence: `Their weights are ${age.toFixed(2)} updates old on average, of ${cap} that max_staleness allows (advice from ${percent(limits.STALENESS_OF_CAP)} of it).`,
        values: { mean_staleness: age, cap },
        steps: lastSteps(history, limits.WINDOW_STEPS),
        what_to_do:
          "Rolling out is faster than training, so rollouts wait and age: fewer rollout workers do as well, or a lower max_staleness.",
        rollouts: [],
      };
    },
  },
  { name: "waiting_for_rollouts", check: waitingForRollouts },
  {
    name: "reward_flat",
    check(history) {
      const rewards = newest(history, "rollout/raw_reward", limits.FLAT_STEPS);
      if (rewards.length < limits.FLAT_STEPS || hasLearned(history)) return undefined;
      const { slope, t } = slopeOf(rewards);
      if (t >= limits.FLAT_T) return undefined;
      const falls = t <= -limits.FLAT_T;
      // What would be said is to raise lr: the last thing that such a policy needs.
      if (!falls && stuckOn(history) !== undefined) return undefined;
      return {
        title: falls ? "The reward falls" : "The reward does not rise",
        evidence: `Over the last ${rewards.length} steps it changes by ${slope.toExponential(1)} a step, ${t.toFixed(1)} standard errors from 0 (a rise has ${limits.FLAT_T} or more); its mean is ${mean(rewards).toFixed(3)}.`,
        values: { slope_per_step: slope, t, mean_reward: mean(rewards) },
        steps: lastSteps(history, limits.FLAT_STEPS),
        what_to_do: falls
          ? "Lower lr: the updates do harm."
          : "Raise lr if entropy and train/grad_norm are steady; look at rollout/group/mixed, for nothing else teaches; read some rollouts for what the grader misses.",
        rollouts: [],
      };
    },
  },
  { name: "validation_falls", check: validationFall },
  {
    name: "gradient_clipped",
    check(history) {
      const cap = history.config.advanced.grad_clip_norm;
      const norms = newest(history, "train/grad_norm", limits.CLIPPED_GRADIENTS);
      if (cap === 0 || norms.length < limits.CLIPPED_GRADIENTS || norms.some((norm) => norm <= cap))
        return undefined;
      return {
        title: "Every gradient is clipped",
        evidence: `All of the last ${norms.length} gradients were longer than grad_clip_norm = ${cap}; their mean length was ${mean(norms).toFixed(2)}.`,
        values: { mean_norm: mean(norms), cap },
        steps: lastSteps(history, limits.CLIPPED_GRADIENTS),
        what_to_do: "The clip sets the length of every step now: raise grad_clip_norm, or judge lr by it.",
        rollouts: [],
      };
    },
  },
  {
    name: "small_batch",
    check({ config: { training } }) {
      const { rollout_batch_size: prompts, n_samples_per_prompt: group } = training;
      if (prompts * group >= limits.LEAST_BATCH && group >= limits.LEAST_GROUP) return undefined;
      return {
        title: "Batch or group is small",
        evidence: `A step has ${prompts} prompts of ${group} rollouts, ${prompts * group} in all (usual: at least ${limits.LEAST_BATCH}, in groups of ${limits.LEAST_GROUP} to 32).`,
        values: { prompts, group, rollouts: prompts * group },
        steps: null,
        what_to_do:
          "Raise n_samples_per_prompt, then rollout_batch_size: noise in the gradient falls with the rollouts of a step.",
        rollouts: [],
      };
    },
  },
];

/** A policy that is stuck passes the other rows by heart: that says nothing about how easy they are. */
function unlessStuck(rule: Rule): Rule {
  return {
    name: rule.name,
    check: (history) => (stuckOn(history) === undefined ? rule.check(history) : undefined),
  };
}

/** A mean over the newest steps that is above its limit. */
function highShare(rule: {
  readonly name: string;
  readonly key: string;
  readonly limit: number;
  readonly title: string;
  readonly what: string;
  readonly whatToDo: string;
  readonly unit?: "nats";
  readonly outcome?: "truncated";
}): Rule {
  const say = (value: number): string => (rule.unit === "nats" ? value.toFixed(4) : percent(value));
  return {
    name: rule.name,
    check(history) {
      const values = newest(history, rule.key, limits.WINDOW_STEPS);
      const average = mean(values);
      if (values.length < limits.LEAST_STEPS || average <= rule.limit) return undefined;
      return {
        title: rule.title,
        evidence: `${say(average)} ${rule.what}, on average over ${values.length} steps (${rule.key}; advice above ${say(rule.limit)}).`,
        values: { mean: average, limit: rule.limit },
        steps: lastSteps(history, limits.WINDOW_STEPS),
        what_to_do: rule.whatToDo,
        rollouts: rule.outcome === undefined ? [] : (history.examples[rule.outcome] ?? []),
      };
    },
  };
}

/** A policy that has learned its task is sure of itself, and rightly so. */
function entropyCollapse(history: RunHistory): ReturnType<Rule["check"]> {
  const all = newest(history, "train/entropy_loss", history.steps.length);
  if (all.length < 2 * limits.LEAST_STEPS || hasLearned(history)) return undefined;
  const [before, now] = [mean(all.slice(0, limits.LEAST_STEPS)), mean(all.slice(-limits.LEAST_STEPS))];
  if (now > limits.ENTROPY_LEFT * before) return undefined;
  return {
    title: "The policy has stopped exploring",
    evidence: `Entropy went from ${before.toFixed(3)} to ${now.toFixed(3)} nats per token (advice at ${percent(limits.ENTROPY_LEFT)} of the first steps or less) before the task is learned.`,
    values: { first: before, last: now },
    steps: lastSteps(history, history.steps.length),
    what_to_do:
      "Go back to an earlier checkpoint with a lower lr, a higher clip_high or a small entropy_coef.",
    rollouts: [],
  };
}

function waitingForRollouts(history: RunHistory): ReturnType<Rule["check"]> {
  const { asynchronous } = history.config.advanced;
  const key = asynchronous ? "perf/wait_for_batch_time" : "perf/rollout_time";
  const limit = asynchronous ? limits.WAITING_SHARE : limits.ROLLING_OUT_SHARE;
  const waited = newest(history, key, limits.WINDOW_STEPS);
  const whole = newest(history, "perf/step_time", limits.WINDOW_STEPS);
  const share = mean(waited) / mean(whole);
  if (waited.length < limits.LEAST_STEPS || !(share > limit)) return undefined;
  return {
    title: "Training waits for rollouts",
    evidence: `${percent(share)} of the time of a step (${mean(waited).toFixed(1)} of ${mean(whole).toFixed(1)} s) goes by before its rollouts are there (advice above ${percent(limit)}).`,
    values: { share, waited_seconds: mean(waited), step_seconds: mean(whole) },
    steps: lastSteps(history, limits.WINDOW_STEPS),
    what_to_do: asynchronous
      ? "More rollout_workers, a faster rollout server, or a higher max_staleness."
      : "Set asynchronous = true, so that rollouts of the next step run beside the update; the slowest rollouts (rollout/duration_seconds/max) hold up a step most.",
    rollouts: [],
  };
}

/** The groups in which `docs/metrics.md` and the dashboard show metrics, in their order. */
export const METRIC_GROUPS = [
  "Reward",
  "Group signal",
  "Policy",
  "Length and behaviour",
  "Optimiser",
  "Staleness",
  "Throughput",
  "Health",
  "Validation",
] as const;

export type MetricDefinition = {
  /** A part in angle brackets stands for any word: `rollout/outcome/<outcome>`. */
  readonly key: string;
  readonly group: (typeof METRIC_GROUPS)[number];
  readonly unit:
    | "reward"
    | "share"
    | "count"
    | "tokens"
    | "seconds"
    | "nats"
    | "ratio"
    | "updates"
    | "1/s"
    | "1/min"
    | "1";
  /** One sentence: over what, divided by what, by which estimator. */
  readonly definition: string;
};

/**
 * Every number that a training step commits. The key is what `--json`, exports and trackers call it. "Rollouts" are the
 * training rollouts of the step's own prompts, before dynamic sampling selects anything; "rewarded" are those whose
 * grader gave a reward; "sampled" those with at least one token of the policy. A mean of nothing, and what is not finite, is left out of the step.
 */
export const METRICS: readonly MetricDefinition[] = [
  ...group("Reward", [
    ["rollout/raw_reward", "reward", "Mean reward of the rewarded rollouts, as the grader gave it."],
    [
      "rollout/reward_std",
      "reward",
      "Standard deviation (population) of the rewards of the rewarded rollouts.",
    ],
    ["rollout/reward_min", "reward", "Smallest reward."],
    ["rollout/reward_max", "reward", "Largest reward."],
    ["rollout/pass_rate", "share", "Rollouts with a reward of at least 1, divided by `rollout/n`."],
    [
      "rollout/n",
      "count",
      "Rollouts whose outcome is none of provider, sandbox, lost and cancelled: the denominator of the pass rate. One without a reward counts, and has not passed.",
    ],
    ["rollout/scored", "count", "Rewarded rollouts: the denominator of the mean reward."],
    ["rollout/temperature", "1", "Temperature that the training rollouts were sampled with."],
    [
      "rollout/component/<name>/mean",
      "1",
      "Mean of the metric <name> that workflow or grader gave beside the reward, over the rewarded rollouts that have it.",
    ],
    ["rollout/component/<name>/std", "1", "Standard deviation (population) of that metric."],
    ["rollout/component/<name>/n", "count", "Rewarded rollouts that have that metric."],
    [
      "train/reward_used",
      "reward",
      "Mean reward that the rewarded, sampled rollouts are trained with: the grader's and the penalty.",
    ],
    [
      "train/overlong_penalty",
      "reward",
      "Mean of the soft penalty for long answers in it, over the same rollouts; 0 or below.",
    ],
  ]),
  ...group("Group signal", [
    [
      "rollout/group/all_same",
      "share",
      "Groups whose rewards are all equal, so that they teach nothing, divided by the groups with at least one reward.",
    ],
    [
      "rollout/group/all_good",
      "share",
      "Groups in which every reward passes, divided by the groups with a reward.",
    ],
    [
      "rollout/group/all_bad",
      "share",
      "Groups in which no reward passes, divided by the groups with a reward.",
    ],
    ["rollout/group/mixed", "share", "Groups with and without passes, divided by the groups with a reward."],
    [
      "rollout/selected/groups",
      "count",
      "Groups that the step trains with, after dynamic sampling and group policy.",
    ],
    [
      "rollout/selected/reward",
      "reward",
      "Mean reward of the rewarded rollouts in these groups. No measure of the policy: they were chosen by their rewards.",
    ],
    [
      "rollout/dropped/all_same",
      "count",
      "Groups that were rolled out and not trained with, because all their rewards are the same or none has one.",
    ],
    [
      "rollout/dropped/policy",
      "count",
      "Groups whose rewards differ and that `group_policy` or `group_min_size` kept out.",
    ],
    [
      "rollout/refill/groups",
      "count",
      "Groups of other prompts that dynamic sampling rolled out in place of such as teach nothing.",
    ],
    [
      "rollout/refill/cap_reached",
      "1",
      "1 when the step ran into `dynamic_sampling_cap`, or out of rows, before enough groups taught; 0 otherwise.",
    ],
    [
      "train/groups_left_out",
      "count",
      "Groups that the update left out: all their rewards are the same, or fewer than two of them have one; where single tokens teach (`kl_coef`, `teacher_model`, `entropy_coef`) only groups without a reward.",
    ],
    [
      "train/rollouts_left_out",
      "count",
      "Rollouts that the update left out: no reward, or no sampled token.",
    ],
  ]),
  ...group("Policy", [
    [
      "train/entropy_loss",
      "nats",
      "Mean entropy of the policy's whole next-token distribution at the sampled tokens of the batch, before the update.",
    ],
    [
      "train/train_rollout_kl",
      "nats",
      "KL divergence between sampler and trainer per sampled token of the batch, by the estimator k3: mean of e^d − 1 − d, d = trainer's log probability minus sampler's; e^d counts as e^20 at most.",
    ],
    ["train/train_rollout_logprob_abs_diff", "nats", "Mean of |d| over the sampled tokens of the batch."],
    [
      "train/train_rollout_logprob_abs_diff_max",
      "nats",
      "Largest |d| among the sampled tokens of the batch.",
    ],
    [
      "train/train_rollout_kl_k1",
      "nats",
      "The same divergence by the estimator k1: mean of −d. Unlike k3 it can be negative.",
    ],
    ["train/ratio/mean", "ratio", "Mean of e^d over the sampled tokens of the batch."],
    ["train/ratio/max", "ratio", "Largest e^d among the sampled tokens of the batch."],
    ["train/chi2/token", "1", "Chi-square divergence of trainer and sampler: mean of e^2d, minus 1."],
    [
      "train/chi2/sequence",
      "1",
      "The same of whole sequences: mean over the sequences of e to twice the sum of d, minus 1.",
    ],
    [
      "train/perplexity/trainer",
      "1",
      "e to minus the mean log probability of the sampled tokens of the batch under the trainer.",
    ],
    ["train/perplexity/sampler", "1", "The same under the sampler."],
    ["train/perplexity/ratio", "ratio", "Trainer's perplexity divided by sampler's."],
    [
      "train/correction/weight",
      "ratio",
      "Mean of what `[advanced].correction` multiplies the sampled tokens of the batch with.",
    ],
    [
      "train/correction/above_cap",
      "share",
      "Sampled tokens of the batch whose e^d is above `correction_cap`, whatever the correction; `token_truncate` truncates these.",
    ],
    [
      "train/correction/below_cap",
      "share",
      "Sampled tokens of the batch whose e^d is below 1 / `correction_cap`.",
    ],
    ["train/correction/masked", "share", "Sampled tokens of the batch that the correction leaves out."],
    [
      "train/pg_clipfrac",
      "share",
      'Sampled tokens of the batch whose ratio to the sampler is beyond a bound of the loss, divided by all of them. With `correction = "none"` and in gspo their gradient is clipped; otherwise it tells the distance only.',
    ],
    [
      "train/clip_fraction/low",
      "share",
      "Of these, tokens below the lower bound; of all losses but cispo only those with a negative advantage, which alone they clip there.",
    ],
    [
      "train/clip_fraction/high",
      "share",
      "Tokens above the upper bound; of all losses but cispo only those with a positive advantage.",
    ],
    [
      "train/reference_kl/k1",
      "nats",
      "KL divergence to the model that training began with, per sampled token of the batch: mean of x, x = policy's log probability minus reference's. Where `kl_coef` is not 0.",
    ],
    ["train/reference_kl/k2", "nats", "The same by the estimator k2: mean of x² / 2."],
    [
      "train/reference_kl/k3",
      "nats",
      "The same by the estimator k3: mean of e^−x − 1 + x; e^−x counts as e^20 at most.",
    ],
    [
      "train/teacher_kl",
      "nats",
      "KL divergence to the teacher, per sampled token of the batch that it has read: mean of policy's log probability minus teacher's. Where there is a teacher.",
    ],
    [
      "train/teacher_left_out",
      "count",
      "Sequences of the batch that are longer than the teacher's context: they are learned without it. Where there is a teacher.",
    ],
  ]),
  ...group("Length and behaviour", [
    [
      "rollout/response_lengths",
      "tokens",
      "Mean of the tokens that the policy sampled, over the sampled rollouts.",
    ],
    ["rollout/response_len/max", "tokens", "Most tokens that the policy sampled in one rollout."],
    [
      "rollout/response_len/passed",
      "tokens",
      "Mean of the sampled tokens over the rewarded, sampled rollouts that pass.",
    ],
    [
      "rollout/response_len/failed",
      "tokens",
      "Mean of the sampled tokens over the rewarded, sampled rollouts that do not pass.",
    ],
    [
      "rollout/prompt_len",
      "tokens",
      "Mean of the tokens of all prompts of a rollout together, over the sampled rollouts.",
    ],
    [
      "rollout/total_lengths",
      "tokens",
      "Mean of the tokens that a rollout brings into training, prompts and tool results included, over the sampled rollouts.",
    ],
    ["rollout/truncated_ratio", "share", "Rollouts with the outcome truncated, divided by all rollouts."],
    ["rollout/turns", "count", "Mean of the model's messages in a rollout, over the sampled rollouts."],
    [
      "rollout/tool_calls",
      "count",
      "Mean of the tool calls in a rollout's messages, over the sampled rollouts.",
    ],
    ["rollout/model_calls", "count", "Mean of the calls to the model, over all rollouts."],
  ]),
  ...group("Optimiser", [
    [
      "train/loss",
      "1",
      "The loss of the update, aggregated as `[advanced].aggregation` says, before the update.",
    ],
    ["train/policy_loss", "1", "That loss without the divergence to the reference."],
    ["train/grad_norm", "1", "Euclidean norm of the whole gradient, before it is clipped."],
    ["train/lr", "1", "Learning rate of the update."],
    [
      "train/updated",
      "1",
      "1 when the weights were updated; 0 when no group taught anything, or the gradient was not finite.",
    ],
    ["train/tokens", "tokens", "Sampled tokens in the batch of the update."],
    ["train/sequences", "count", "Token sequences in the batch: one for each branch of a conversation."],
  ]),
  ...group("Staleness", [
    [
      "rollout/staleness/mean",
      "updates",
      "Mean age of the oldest weights that sampled a token of a rollout, in updates before those that the step trains, over all sampled rollouts that ran for the step, as `rollout/ended` counts them.",
    ],
    ["rollout/staleness/max", "updates", "Largest such age."],
    [
      "rollout/mixed_versions",
      "share",
      "Of the same rollouts, the share whose tokens come from more than one version of the weights.",
    ],
    [
      "rollout/queue_depth",
      "count",
      "Training rollouts of later steps that had ended when the step's rollouts were complete: what waits for the trainer. 0 in the synchronous loop.",
    ],
    ["rollout/in_flight", "count", "Rollouts that were running at that moment."],
  ]),
  ...group("Throughput", [
    [
      "perf/step_time",
      "seconds",
      "From the beginning of the step until it is measured: with validation, without checkpoint and commit.",
    ],
    [
      "perf/rollout_time",
      "seconds",
      "From the moment at which the step's rollouts could begin until the last one had ended. Rollouts of an earlier life of the run took none of it.",
    ],
    [
      "perf/wait_for_batch_time",
      "seconds",
      "Of the step, in which the trainer waited for its rollouts. In the synchronous loop that is all of `perf/rollout_time`.",
    ],
    [
      "perf/rollout_overlap",
      "share",
      "Share of `perf/rollout_time` in which the trainer did other work: 1 minus the wait divided by it.",
    ],
    ["perf/train_time", "seconds", "Of the step, in gradient and update."],
    ["perf/update_weights_time", "seconds", "Of the step, in handing the weights to the sampler."],
    ["perf/validation_time", "seconds", "Of the step, in validation; absent where none was due."],
    [
      "perf/sample_tokens_per_second",
      "1/s",
      "Sampled tokens of the rollouts that ran in this step, by `perf/rollout_time`.",
    ],
    ["perf/train_tokens_per_second", "1/s", "Tokens of the batch, prompts included, by `perf/train_time`."],
    ["perf/rollouts_per_minute", "1/min", "Rollouts that ran in this step, by `perf/rollout_time`."],
    [
      "rollout/duration_seconds/mean",
      "seconds",
      "Mean time of a rollout from start to end, over all rollouts.",
    ],
    ["rollout/duration_seconds/max", "seconds", "Longest time of a rollout."],
  ]),
  ...group("Health", [
    [
      "rollout/outcome/<outcome>",
      "count",
      "Rollouts that ended so; those of `ok` always, of the others where there are some. `grader` counts failed judges, `timeout` workflows over their deadline.",
    ],
    [
      "rollout/ended",
      "count",
      "All training rollouts that ran for the step: of its own prompts, of refills, and those that were run again.",
    ],
    ["rollout/ended/<outcome>", "count", "Of these, those that ended so; those of which there are some."],
    [
      "rollout/retries",
      "count",
      "Failed rollouts that `group_policy` ran again; `rollout/outcome/<outcome>` tells how the last repeat ended.",
    ],
    ["rollout/retries/<outcome>", "count", "Of these, those that had failed so."],
    [
      "rollout/errored_ratio",
      "share",
      "Rollouts whose outcome is neither ok nor truncated nor cancelled, divided by the rollouts that were not cancelled.",
    ],
    ["rollout/empty", "count", "Rollouts in which the policy sampled no token."],
    [
      "rollout/prefix_breaks",
      "count",
      "Model calls whose prompt did not extend the token ids of the call before it: the client changed its history.",
    ],
  ]),
  ...group("Validation", [
    [
      "eval/validation/reward",
      "reward",
      "Mean reward of the rewarded validation rollouts: one greedy rollout of each held-out row, with the weights after the step.",
    ],
    [
      "eval/validation/pass_rate",
      "share",
      "Validation rollouts with a reward of at least 1, divided by `eval/validation/n`.",
    ],
    [
      "eval/validation/n",
      "count",
      "Validation rollouts whose outcome is none of provider, sandbox, lost and cancelled.",
    ],
    ["eval/validation/scored", "count", "Rewarded validation rollouts."],
    ["eval/validation/temperature", "1", "Temperature of the validation rollouts."],
  ]),
];

function group(
  name: MetricDefinition["group"],
  metrics: readonly (readonly [key: string, unit: MetricDefinition["unit"], definition: string])[],
): MetricDefinition[] {
  return metrics.map(([key, unit, definition]) => ({ key, group: name, unit, definition }));
}

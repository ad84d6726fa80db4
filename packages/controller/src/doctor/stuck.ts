import { lastSteps, mean, newest, percent, type Rule, type RunHistory } from "./run-history.ts";
import * as limits from "./thresholds.ts";

/** What tells a policy that no longer tries anything on rows that it never passes; undefined for any other. */
export function stuckOn(history: RunHistory) {
  const meanOf = (key: string): number => mean(newest(history, key, limits.WINDOW_STEPS));
  const entropies = newest(history, "train/entropy_loss", limits.WINDOW_STEPS);
  const shares = {
    never: meanOf("rollout/group/all_bad"),
    always: meanOf("rollout/group/all_good"),
    same: meanOf("rollout/group/all_same"),
    entropy: mean(entropies),
  };
  const hasAll = Object.values(shares).every((value) => Number.isFinite(value));
  if (!hasAll || entropies.length < limits.LEAST_STEPS) return undefined;
  if (meanOf("rollout/pass_rate") >= limits.LEARNED_PASS_RATE) return undefined;
  return shares.never > limits.STUCK_NEVER_SHARE && shares.entropy < limits.STUCK_ENTROPY
    ? shares
    : undefined;
}

/** Rows that never pass are no sign of too hard or too easy rows when the policy does the same each time. */
export const stuckRows: Rule = {
  name: "stuck_rows",
  check(history) {
    const stuck = stuckOn(history);
    if (stuck === undefined) return undefined;
    const { never, always, same, entropy } = stuck;
    const rows = history.neverPassed;
    const named =
      rows.length === 0
        ? ""
        : ` Rows that no rollout passed: ${rows.map(({ row, rollouts }) => `${row} (${rollouts} ${rollouts === 1 ? "rollout" : "rollouts"})`).join(", ")}.`;
    return {
      title: "The policy is stuck: it never passes some rows, and no longer tries anything else on them",
      evidence: `${percent(never)} of the groups pass with no rollout (advice above ${percent(limits.STUCK_NEVER_SHARE)}) and ${percent(always)} with every one, while entropy is ${entropy.toFixed(3)} nats per token (advice below ${limits.STUCK_ENTROPY}); ${percent(same)} of the groups have rewards that are all the same and teach nothing.${named}`,
      values: { all_bad: never, all_good: always, all_same: same, entropy },
      steps: lastSteps(history, limits.WINDOW_STEPS),
      what_to_do:
        "More steps or a higher lr will not help. Stop here and take the best checkpoint; or train on from an earlier one, while entropy was higher, with entropy_coef, kl_coef or a lower lr. Read those rows with `osmosis train rollouts`: what does every rollout do alike?",
      rollouts: rows.map(({ example }) => example),
    };
  },
};

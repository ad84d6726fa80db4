/**
 * Which groups a step rolls out, and which of them it trains with.
 *
 * A step begins with the groups of its prompts. With dynamic sampling (arXiv 2503.14476) each group that cannot teach,
 * because all its rewards are the same or the group policy refuses it, is replaced by a group of another prompt, until
 * as many groups teach as the step has prompts, or the cap is reached. The order of the replacements depends on the seed
 * and the step alone, so that steps stay independent of each other, whichever of them is rolled out first.
 */
import type { DatasetRow, RolloutRecord, TrainingRunConfig } from "@osmosis/protocol";
import { seedOf, shuffled } from "../seed.ts";
import { tokensTeach } from "./batch.ts";
import { groupPolicyOf } from "./group-policy.ts";
import { tasksOfStep } from "./schedule.ts";
import type { StepTask } from "./schedule.ts";

export type PlanConfig = Pick<TrainingRunConfig, "training" | "advanced">;

/** The tasks of one group. */
export type GroupTasks = readonly StepTask[];

export type StepPlan = {
  /** The groups that every step rolls out; the curves of reward and pass rate are over them. */
  readonly first_P: readonly GroupTasks[];
  /** What takes the place of groups that do not teach, in this order. */
  readonly refill_P: readonly GroupTasks[];
  /** Groups that shall teach. */
  readonly wanted: number;
  /** Groups that may be rolled out. */
  readonly limit: number;
};

/** Prompts for which `isTrained` is false are in no group. */
export function planOfStep(
  config: PlanConfig,
  rows: readonly DatasetRow[],
  step: number,
  isTrained: (row: DatasetRow) => boolean = () => true,
): StepPlan {
  const all_P = byGroup(tasksOfStep(config, rows, step));
  const first_P = all_P.filter(([task]) => task !== undefined && isTrained(task.row));
  const wanted = all_P.length;
  const refill_P = isDynamic(config)
    ? refillOf(config, rows, step, all_P).filter(([task]) => task !== undefined && isTrained(task.row))
    : [];
  const limit = Math.floor(wanted * config.advanced.dynamic_sampling_cap);
  return { first_P, refill_P, wanted, limit };
}

/** Whether groups that do not teach are replaced: not where single tokens teach, since then every group does. */
export function isDynamic({ advanced }: PlanConfig): boolean {
  return advanced.dynamic_sampling && !tokensTeach(advanced);
}

/** A group of each training row that the step does not have, in an order of the step's own. */
function refillOf(
  { training, advanced }: PlanConfig,
  rows: readonly DatasetRow[],
  step: number,
  all_P: readonly GroupTasks[],
): GroupTasks[] {
  const taken = new Set(all_P.flat().map(({ row }) => row.row_index));
  const others = rows.slice(advanced.holdout_rows).filter(({ row_index }) => !taken.has(row_index));
  return shuffled(others, seedOf(advanced.seed, "refill", step)).map((row, index) =>
    Array.from({ length: training.n_samples_per_prompt }, (_, sampleIndex) => ({
      row,
      sampleIndex,
      group: all_P.length + index,
    })),
  );
}

/** The groups to roll out next, when `rolled_P` are what the step's groups, first and refill, have become. */
export function nextGroups(
  plan: StepPlan,
  rolled_P: readonly (readonly RolloutRecord[])[],
  config: PlanConfig,
): readonly GroupTasks[] {
  const missing = plan.wanted - rolled_P.filter((rollouts_G) => teaches(rollouts_G, config)).length;
  const used = rolled_P.length - plan.first_P.length;
  const room = plan.limit - rolled_P.length;
  return plan.refill_P.slice(used, used + Math.max(0, Math.min(missing, room)));
}

/**
 * The groups that a step trains with: with dynamic sampling those that teach, else those that the group policy lets
 * through, all-same ones included.
 */
export function trainedGroups(
  rolled_P: readonly (readonly RolloutRecord[])[],
  config: PlanConfig,
): (readonly RolloutRecord[])[] {
  const { isViable } = groupPolicyOf(config.advanced);
  return rolled_P.filter((rollouts_G) =>
    isDynamic(config) ? teaches(rollouts_G, config) : isViable(rollouts_G),
  );
}

/** Whether rewards alone make a gradient of the group. */
export function teaches(rollouts_G: readonly RolloutRecord[], { advanced }: PlanConfig): boolean {
  return groupPolicyOf(advanced).isViable(rollouts_G) && !isAllSame(rollouts_G);
}

export function isAllSame(rollouts_G: readonly RolloutRecord[]): boolean {
  const rewards = rollouts_G.flatMap(({ reward }) => (reward === null ? [] : [reward]));
  return new Set(rewards).size <= 1;
}

function byGroup(tasks: readonly StepTask[]): GroupTasks[] {
  const groups: StepTask[][] = [];
  for (const task of tasks) (groups[task.group] ??= []).push(task);
  return groups;
}

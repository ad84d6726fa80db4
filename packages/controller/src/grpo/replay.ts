import type { Scorer, TrainableModel } from "@osmosis/engine";
import type { RolloutRecord, TrainingRunConfig } from "@osmosis/protocol";
import { recordedRollouts } from "../rollout/recorded-rollouts.ts";
import type { RunPorts } from "../run-ports.ts";
import { batchOf } from "./batch.ts";
import { finite } from "./metrics.ts";
import type { Metrics } from "./metrics.ts";
import { learningRate } from "./schedule.ts";
import { nextGroups, planOfStep, trainedGroups } from "./step-plan.ts";
import type { GroupTasks } from "./step-plan.ts";
import { groupsOf } from "./step-rollouts.ts";
import { update } from "./update.ts";

type StepConfig = Pick<TrainingRunConfig, "training" | "sampling" | "advanced">;

export type ReplayOptions = {
  readonly config: StepConfig;
  /** The model with the state after step `from` loaded. */
  readonly model: TrainableModel;
  /** As in the run. */
  readonly reference?: Scorer | undefined;
  readonly teacher?: Scorer | undefined;
  /** Rows of the run's data set. */
  readonly rowCount: number;
  /** Steps of the whole run: learning rates depend on it. */
  readonly totalSteps: number;
  readonly from: number;
  /** The last step that is repeated. */
  readonly to: number;
  /** What step `to` is repeated with, where that is not `config`. */
  readonly lastConfig?: StepConfig;
  /** The rollouts that a step was trained with, in any order. */
  readonly rolloutsOf: (step: number) => Promise<readonly RolloutRecord[]>;
  readonly replayed: (step: number, metrics: Metrics) => Promise<void>;
  readonly log: RunPorts["log"];
  readonly signal: AbortSignal;
};

/**
 * Repeats the updates of a run from what it stored: the same groups, in the same order, in the same batch. On a trainer
 * that computes the same bits every time, such as the embedded one, each step measures what it measured in the run.
 *
 * @throws the signal's reason when it aborts, and whatever a port or the model throws.
 */
export async function replaySteps(options: ReplayOptions): Promise<void> {
  const { signal } = options;
  for (let step = options.from + 1; step <= options.to; step++) {
    signal.throwIfAborted();
    const rollouts = await options.rolloutsOf(step);
    const config = step === options.to ? (options.lastConfig ?? options.config) : options.config;
    const metrics = await replayStep(step, rollouts, { ...options, config });
    await options.replayed(step, metrics);
  }
}

async function replayStep(
  step: number,
  stored: readonly RolloutRecord[],
  options: Omit<ReplayOptions, "from" | "to" | "lastConfig">,
): Promise<Metrics> {
  const { config, totalSteps } = options;
  // Which rows a step has is decided by their count; what they hold is in the rollouts.
  const rows = Array.from({ length: options.rowCount }, (_, row_index) => ({
    row_index,
    messages: [],
    label: null,
    metadata: null,
  }));
  const executionsOf = recordedRollouts(stored, { phase: "train", step });
  const wasRolledOut = (tasks_G: GroupTasks): boolean =>
    tasks_G.some((task) => executionsOf(task).length > 0);
  const { first_P, refill_P, ...limits } = planOfStep(config, rows, step);
  // Of rows that the run may not train on there are no rollouts.
  const plan = {
    ...limits,
    first_P: first_P.filter(wasRolledOut),
    refill_P: refill_P.filter(wasRolledOut),
  };
  // A task is executed again only when what there was could not be used, so the last execution is the one that counts.
  // Round by round as in the run: an earlier life of it may have rolled out more replacements than its last one needed.
  const rolled_P: RolloutRecord[][] = [];
  let next_P: readonly GroupTasks[] = plan.first_P;
  while (next_P.length > 0) {
    rolled_P.push(...next_P.map((tasks_G) => tasks_G.flatMap((task) => executionsOf(task).at(-1) ?? [])));
    next_P = nextGroups(plan, rolled_P, config);
  }
  const groups_P = groupsOf(trainedGroups(rolled_P, config));
  const batch = batchOf(groups_P, config);
  return finite(
    await update(batch, learningRate(config, { step, totalSteps }), {
      config,
      model: options.model,
      reference: options.reference,
      teacher: options.teacher,
      ports: { log: options.log },
    }),
  );
}

import type { RolloutRecord } from "@osmosis/protocol";
import { collectRollouts } from "../rollout/collect-rollouts.ts";
import type { Collected, RolloutTask } from "../rollout/collect-rollouts.ts";
import { driveRollout } from "../rollout/drive-rollout.ts";
import type { DurableWriter } from "../rollout/durable-writer.ts";
import { recordedRollouts } from "../rollout/recorded-rollouts.ts";
import { rolloutSeed } from "../rollout/rollout-id.ts";
import { failureLog } from "../rollout/rollout-log.ts";
import type { RolloutPool } from "../rollout/rollout-pool.ts";
import type { Group } from "./batch.ts";
import { groupPolicyOf } from "./group-policy.ts";
import type { RowSplit } from "./held-out.ts";
import { isDynamic, nextGroups, planOfStep, trainedGroups } from "./step-plan.ts";
import type { GroupTasks } from "./step-plan.ts";
import type { TrainRunOptions } from "./train-options.ts";

/** Validation is greedy, so that its curve moves with the weights and not with the dice. */
export const VALIDATION_TEMPERATURE = 0;

export type StepOptions = TrainRunOptions & {
  readonly step: number;
  readonly split: RowSplit;
  readonly pool: RolloutPool;
  readonly write: DurableWriter;
  readonly stopReason: (rollout: RolloutRecord) => string | undefined;
  /** Weights that may have sampled a recorded rollout which is to be used. */
  readonly oldestWeights: number;
};

/** What a step rolled out. */
export type StepRollouts = {
  readonly type: "complete";
  /** The groups of the step's own prompts, in their order; nothing is selected. */
  readonly first_P: readonly (readonly RolloutRecord[])[];
  /** Groups of other prompts that took the place of such as teach nothing. */
  readonly refill_P: readonly (readonly RolloutRecord[])[];
  /** Groups to train with, some of the others. */
  readonly trained_P: readonly (readonly RolloutRecord[])[];
  /** Executions in no group, because they failed and another one took their place. */
  readonly replaced: readonly RolloutRecord[];
  /** How many groups dynamic sampling wanted to teach; undefined without it. */
  readonly wanted: number | undefined;
};

/** Rolls out the groups of a step, and with dynamic sampling those that replace them, round by round. */
export async function trainingRollouts(
  options: StepOptions,
): Promise<StepRollouts | Extract<Collected, { type: "stopped" }>> {
  const { config, rows, step, split } = options;
  const plan = planOfStep(config, rows, step, split.isTrained);
  const rolled_P: RolloutRecord[][] = [];
  const replaced: RolloutRecord[] = [];
  let next_P: readonly GroupTasks[] = plan.first_P;
  while (next_P.length > 0) {
    const collected = await collect(next_P.flat(), "train", options);
    if (collected.type === "stopped") return collected;
    rolled_P.push(...inGroups(next_P, collected.rollouts));
    replaced.push(...collected.replaced);
    next_P = nextGroups(plan, rolled_P, config);
  }
  return {
    type: "complete",
    first_P: rolled_P.slice(0, plan.first_P.length),
    refill_P: rolled_P.slice(plan.first_P.length),
    trained_P: trainedGroups(rolled_P, config),
    replaced,
    wanted: isDynamic(config) ? plan.wanted : undefined,
  };
}

/** One rollout of each held-out row with the weights that the sampler has. */
export function validationRollouts(options: StepOptions): Promise<Collected> {
  const tasks = options.split.held.map((row) => ({ row, sampleIndex: 0 }));
  return collect(tasks, "validation", options);
}

function collect(
  tasks: readonly RolloutTask[],
  phase: "train" | "validation",
  options: StepOptions,
): Promise<Collected> {
  const { config, step, runId, server, gateway, ports, clock, signal } = options;
  const { training, sampling, advanced } = config;
  const temperature = phase === "train" ? sampling.rollout_temperature : VALIDATION_TEMPERATURE;
  return collectRollouts(tasks, {
    pool: options.pool,
    rank: step,
    recordedOf: recordedRollouts(options.recorded, { phase, step }),
    isUsable: ({ completion_tokens: tokens, weights_version_min: version }) =>
      tokens === 0 || version >= options.oldestWeights,
    retries: phase === "train" ? groupPolicyOf(advanced).retries : 0,
    write: options.write,
    stopReason: options.stopReason,
    ended: failureLog(ports.log, `step ${step}`),
    signal,
    drive: ({ row, sampleIndex }, execution, signal) =>
      (options.drive ?? driveRollout)({
        server,
        gateway,
        row,
        identity: { runId, phase, step, sampleIndex, execution },
        seed: rolloutSeed(advanced.seed, { phase, step, rowIndex: row.row_index, sampleIndex }),
        sampling: {
          temperature,
          topP: sampling.rollout_top_p,
          maxTokens: training.max_response_length,
          wins: "run",
        },
        maxPromptTokens: training.max_prompt_length,
        maxResponseTokens: training.max_response_length,
        timeouts: {
          agentSeconds: training.agent_workflow_timeout_s,
          graderSeconds: training.grader_timeout_s,
        },
        grade: true,
        rewardRange: advanced.reward_range,
        clock,
        signal,
      }),
  });
}

function inGroups(tasks_P: readonly GroupTasks[], rollouts: readonly RolloutRecord[]): RolloutRecord[][] {
  let from = 0;
  return tasks_P.map((tasks_G) => rollouts.slice(from, (from += tasks_G.length)));
}

/** Groups with the rewards to train with. */
export function groupsOf(
  rollouts_P_G: readonly (readonly RolloutRecord[])[],
  transform?: (rewards_P_G: readonly (readonly (number | null)[])[]) => (number | null)[][] | undefined,
): Group[] {
  const rewards_P_G = rollouts_P_G.map((rollouts_G) => rollouts_G.map(({ reward }) => reward));
  const used_P_G = transform?.(rewards_P_G) ?? rewards_P_G;
  return rollouts_P_G.map((rollouts_G, p) => ({ rollouts_G, rewards_G: used_P_G[p] ?? [] }));
}

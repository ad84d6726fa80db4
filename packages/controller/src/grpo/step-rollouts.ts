import type { RolloutRecord } from "@osmosis/protocol";
import { collectRollouts, recordIndex } from "../rollout/collect-rollouts.ts";
import type { Collected, RolloutTask } from "../rollout/collect-rollouts.ts";
import { driveRollout } from "../rollout/drive-rollout.ts";
import { failureLog } from "../rollout/rollout-log.ts";
import { rolloutSeed } from "../rollout/rollout-id.ts";
import type { Group } from "./batch.ts";
import { tasksOfStep } from "./schedule.ts";
import type { StepTask } from "./schedule.ts";
import type { TrainRunOptions } from "./train-options.ts";

/** Validation is greedy, so that its curve moves with the weights and not with the dice. */
export const VALIDATION_TEMPERATURE = 0;

const DEFAULT_CONCURRENCY = 128;

type StepOptions = TrainRunOptions & {
  readonly step: number;
  readonly stopReason: (rollout: RolloutRecord) => string | undefined;
};

/** The rollouts that a step trains on, in the order of their tasks. */
export async function trainingRollouts(options: StepOptions): Promise<
  | { readonly type: "stopped"; readonly reason: string }
  | {
      readonly type: "complete";
      readonly rollouts: readonly RolloutRecord[];
      readonly tasks: readonly StepTask[];
    }
> {
  const { config, rows, step } = options;
  const tasks = tasksOfStep(config, rows, step);
  const collected = await collect(tasks, "train", config.sampling.rollout_temperature, options);
  return collected.type === "stopped" ? collected : { ...collected, tasks };
}

/** One rollout of each held-out row with the weights after the step. */
export function validationRollouts(options: StepOptions): Promise<Collected> {
  const held = options.rows.slice(0, options.config.advanced.holdout_rows);
  const tasks = held.map((row) => ({ row, sampleIndex: 0 }));
  return collect(tasks, "validation", VALIDATION_TEMPERATURE, options);
}

function collect(
  tasks: readonly RolloutTask[],
  phase: "train" | "validation",
  temperature: number,
  options: StepOptions,
): Promise<Collected> {
  const { config, step, runId, server, gateway, ports, clock, stopReason, signal } = options;
  const { training, sampling, advanced } = config;
  return collectRollouts(tasks, {
    concurrency: options.concurrency ?? DEFAULT_CONCURRENCY,
    recordedOf: recordIndex(options.recorded, { phase, step }),
    record: ports.record,
    stopReason,
    ended: failureLog(ports.log, `step ${step}`),
    signal,
    drive: ({ row, sampleIndex }, signal) =>
      (options.drive ?? driveRollout)({
        server,
        gateway,
        row,
        identity: { runId, phase, step, sampleIndex },
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
        clock,
        signal,
      }),
  });
}

/** A step's rollouts by prompt, with the rewards to train with. */
export function groupsOf(
  tasks: readonly StepTask[],
  rollouts: readonly RolloutRecord[],
  transform: (rewards_P_G: readonly (readonly (number | null)[])[]) => (number | null)[][] | undefined,
): Group[] {
  const rollouts_P_G: RolloutRecord[][] = [];
  for (const [index, { group }] of tasks.entries()) {
    const rollout = rollouts[index];
    if (rollout !== undefined) (rollouts_P_G[group] ??= []).push(rollout);
  }
  const rewards_P_G = rollouts_P_G.map((rollouts_G) => rollouts_G.map(({ reward }) => reward));
  const used_P_G = transform(rewards_P_G) ?? rewards_P_G;
  return rollouts_P_G.map((rollouts_G, p) => ({ rollouts_G, rewards_G: used_P_G[p] ?? [] }));
}

import type { DatasetRow, EvalRunConfig, RolloutRecord } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import { deadlineOf } from "../deadline.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { collectRollouts } from "../rollout/collect-rollouts.ts";
import { driveRollout } from "../rollout/drive-rollout.ts";
import { batchedWriter } from "../rollout/durable-writer.ts";
import { noneScored } from "../rollout/failure-guard.ts";
import { recordedRollouts } from "../rollout/recorded-rollouts.ts";
import type { DriveRollout } from "../rollout/drive-rollout.ts";
import { failureLog, progressLog } from "../rollout/rollout-log.ts";
import { rolloutSeed } from "../rollout/rollout-id.ts";
import { openRolloutPool } from "../rollout/rollout-pool.ts";
import type { RolloutServer } from "../rollout/server-client.ts";
import type { RunEnd, RunPorts } from "../run-ports.ts";

export type EvaluateRunOptions = {
  readonly runId: string;
  readonly config: Pick<EvalRunConfig, "evaluation" | "advanced">;
  readonly gateway: Gateway;
  readonly server: RolloutServer;
  /** The selected rows, in order. */
  readonly rows: readonly DatasetRow[];
  /** Rollouts of the run that were recorded already; they are not run again. */
  readonly recorded: readonly RolloutRecord[];
  readonly ports: RunPorts;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Who brings a rollout to its end; by default this process. */
  readonly drive?: DriveRollout;
};

/**
 * Runs `n` rollouts of each row, `batch_size` rows at a time. An evaluation in which no rollout got a reward has failed:
 * it says nothing about the model.
 *
 * @throws the signal's reason when it aborts, why the gateway lost its model, and whatever a port throws.
 */
export async function evaluateRun(options: EvaluateRunOptions): Promise<RunEnd> {
  const { runId, config, gateway, server, rows, ports, clock } = options;
  const { evaluation, advanced } = config;
  if (rows.length === 0) return { status: "failed", error: "The evaluation has no rows." };
  const phase = "eval" as const;
  const tasks = rows.flatMap((row) =>
    Array.from({ length: evaluation.n }, (_, sampleIndex) => ({ row, sampleIndex })),
  );

  const recordedOf = recordedRollouts(options.recorded, { phase, step: 0 });
  const done = tasks.filter((task) => recordedOf(task).length > 0).length;
  const progress = progressLog(ports.log, { done, total: tasks.length });
  const failures = failureLog(ports.log, "evaluate");

  using bounds = deadlineOf([options.signal, gateway.lost]);
  const collected = await collectRollouts(tasks, {
    pool: openRolloutPool(evaluation.batch_size * evaluation.n),
    rank: 0,
    recordedOf,
    write: batchedWriter(ports.record),
    stopReason: () => undefined,
    ended(rollout) {
      failures(rollout);
      progress(rollout);
    },
    kept: withoutConversation,
    signal: bounds.signal,
    drive: ({ row, sampleIndex }, execution, signal) =>
      (options.drive ?? driveRollout)({
        server,
        gateway,
        row,
        identity: { runId, phase, step: 0, sampleIndex, execution },
        seed: rolloutSeed(advanced.seed, { phase, step: 0, rowIndex: row.row_index, sampleIndex }),
        sampling: {
          temperature: advanced.temperature,
          topP: advanced.top_p,
          maxTokens: advanced.max_tokens,
          wins: "request",
        },
        timeouts: {
          agentSeconds: evaluation.agent_workflow_timeout_s,
          graderSeconds: evaluation.grader_timeout_s,
        },
        grade: true,
        rewardRange: advanced.reward_range,
        clock,
        signal,
      }),
  });
  const error = collected.type === "stopped" ? collected.reason : noneScored(collected.rollouts);
  return error === undefined ? { status: "finished" } : { status: "failed", error };
}

/** What an evaluation needs of a rollout that is durable: it may have more of them than memory has room for. */
export function withoutConversation(rollout: RolloutRecord): RolloutRecord {
  return { ...rollout, messages: [], sequences: [], metrics: {}, trajectory: null };
}

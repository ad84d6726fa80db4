import type { DatasetRow, EvalRunConfig, RolloutRecord } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import type { Gateway } from "../gateway/gateway.ts";
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
};

/** Runs an evaluation to its end. */
export async function evaluateRun(options: EvaluateRunOptions): Promise<RunEnd> {
  throw new Error(`not yet: ${options.runId}`);
}

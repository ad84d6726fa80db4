import type { Scorer, TrainableModel } from "@osmosis/engine";
import type { DatasetRow, RolloutRecord, PastStep, TrainingRunConfig } from "@osmosis/protocol";
import type { Clock } from "../clock.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { DriveRollout } from "../rollout/drive-rollout.ts";
import type { RolloutServer } from "../rollout/server-client.ts";
import type { RunPorts } from "../run-ports.ts";
import type { Metrics } from "./metrics.ts";

export type TrainPorts = RunPorts & {
  /** Commits a step; `saveState` writes into a folder everything that the next step depends on. */
  readonly commitStep: (commit: {
    readonly step: number;
    readonly metrics: Metrics;
    /** Training rollouts that were run for the step: with and without a reward, replacements and repeats included. */
    readonly examples: number;
    readonly saveState: (folder: string) => Promise<void>;
  }) => Promise<void>;
  /** Keeps the weights as a model; called before the commit of the same step, so possibly twice after a crash. */
  readonly checkpoint: (checkpoint: {
    readonly step: number;
    /** Validation reward if the step was validated, else the mean training reward. */
    readonly reward: number | null;
    /** Mean reward of the step's validation; null without one, or where none of it has a reward. */
    readonly validationReward: number | null;
    /** The best one of the run so far: of the validations, or without them of the checkpoints' training rewards. */
    readonly isBest: boolean;
    /** The run ends with it. */
    readonly isLast: boolean;
    readonly method: "lora" | "full";
    readonly saveWeights: (folder: string) => Promise<void>;
  }) => Promise<void>;
};

export type TrainRunOptions = {
  readonly runId: string;
  readonly config: Pick<TrainingRunConfig, "training" | "sampling" | "checkpoints" | "advanced">;
  /** The model with the state of the last committed step loaded. */
  readonly model: TrainableModel;
  /** The model that training began with; needed where `kl_coef` is not 0. */
  readonly reference?: Scorer;
  /** The model of `teacher_model`; needed where there is one. */
  readonly teacher?: Scorer;
  /** It must sample from `model`. */
  readonly gateway: Gateway;
  readonly server: RolloutServer;
  /** All rows of the data set, in order. */
  readonly rows: readonly DatasetRow[];
  /** Rollouts that were recorded and belong to no committed step; they are not run again. */
  readonly recorded: readonly RolloutRecord[];
  /** 0 at the beginning; the run goes on with the step after it. */
  readonly committedSteps: number;
  /** The committed steps, in order; the best checkpoint and the early end of the run depend on them. */
  readonly pastSteps?: readonly PastStep[];
  readonly ports: TrainPorts;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Rollouts in flight at most. */
  readonly concurrency?: number;
  /** Who brings a rollout to its end; by default this process. */
  readonly drive?: DriveRollout;
  /** Changes the rewards that a step trains with, by group; for controls such as shuffled rewards. */
  readonly transformRewards?: (
    rewards_P_G: readonly (readonly (number | null)[])[],
    step: number,
  ) => (number | null)[][];
};

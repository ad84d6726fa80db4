import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { RolloutRequest, TrajectoryReport } from "@osmosis/protocol";
import { atifFromMessages, errorMessage, formatAtif } from "@osmosis/protocol";
import type { RolloutJob, RolloutResult } from "./execution.ts";
import { SDK_VERSION } from "./version.ts";

/** Where a server keeps what belongs to a rollout: `<root>/<rollout id>/{artifacts/,trajectory.json}`. */
export type RolloutFiles = {
  /** The artifacts folder of a rollout, made; null when it cannot be. */
  makeArtifactsDir(rolloutId: string): Promise<string | null>;
  /** Writes `trajectory.json` when there is a sample. It never fails: a full disk must not cost a reward. */
  saveTrajectory(saved: SavedTrajectory): Promise<void>;
};

export type SavedTrajectory = {
  readonly job: RolloutJob;
  readonly request: RolloutRequest;
  readonly result: RolloutResult;
  /** From a callback's acknowledgement; it outranks what the workflow's own source says. */
  readonly report: TrajectoryReport | undefined;
};

export function createRolloutFiles(root: string, log: (text: string) => void): RolloutFiles {
  let complained = false;
  const complain = (what: string, error: unknown) => {
    if (!complained)
      log(`${what}: ${errorMessage(error)}. Rollouts go on; further failures of this kind are not logged.`);
    complained = true;
  };
  return {
    async makeArtifactsDir(rolloutId) {
      const folder = join(root, rolloutId, "artifacts");
      try {
        await mkdir(folder, { recursive: true });
        return folder;
      } catch (error) {
        complain(`The artifacts folder ${folder} cannot be made`, error);
        return null;
      }
    },
    async saveTrajectory(saved) {
      const file = join(root, saved.job.rolloutId, "trajectory.json");
      const text = trajectoryText(saved);
      if (text === undefined) return;
      try {
        await writeFile(file, text);
      } catch (error) {
        complain(`The trajectory ${file} cannot be written`, error);
      }
    },
  };
}

function trajectoryText({ job, request, result, report }: SavedTrajectory): string | undefined {
  const { sample } = result;
  if (!sample) return undefined;
  return formatAtif(
    atifFromMessages({
      rolloutId: job.rolloutId,
      agent: { name: "osmosis-rollout-sdk", version: SDK_VERSION },
      messages: sample.messages,
      label: job.label,
      reward: sample.reward,
      sampleMetrics: sample.metrics,
      sampleExtraFields: sample.extraFields,
      requestMetadata: job.metadata,
      requestExtraFields: request.extra_fields,
      report: report ?? sample.report,
    }),
  );
}

import { readFile, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";
import type { RolloutRecord } from "@osmosis/protocol";
import type { RunLog } from "./run-log.ts";

/** Brings rollouts to the platform, complete with what the rollout server wrote, and without secrets. */
export function rolloutRecorder(parts: {
  /** Where the rollout server leaves its files. */
  readonly artifactRoot: string;
  readonly log: Pick<RunLog, "hide">;
  readonly send: (rollouts: readonly RolloutRecord[]) => Promise<void>;
}): (records: readonly RolloutRecord[]) => Promise<void> {
  const { artifactRoot, log, send } = parts;
  return async (records) => {
    if (records.length === 0) return;
    const complete = await Promise.all(records.map((record) => withTrajectory(record, artifactRoot)));
    await send(
      complete.map((one) => ({
        ...one,
        error: log.hide(one.error),
        messages: log.hide(one.messages),
        trajectory: log.hide(one.trajectory),
      })),
    );
    await discardTrajectories(records, artifactRoot);
  };
}

/** Adds the trajectory that the rollout server wrote, if it did. */
async function withTrajectory(record: RolloutRecord, artifactRoot: string): Promise<RolloutRecord> {
  if (record.trajectory !== null) return record;
  const folder = join(artifactRoot, record.rollout_id);
  try {
    const trajectory: unknown = JSON.parse(await readFile(join(folder, "trajectory.json"), "utf8"));
    return { ...record, trajectory };
  } catch {
    // Not written, or not complete yet: the record's own messages are what there is.
    return record;
  }
}

/** Deletes what the platform has by now. What an agent left as an artifact stays where it is. */
async function discardTrajectories(records: readonly RolloutRecord[], artifactRoot: string): Promise<void> {
  for (const { rollout_id: id } of records) {
    const folder = join(artifactRoot, id);
    await rm(join(folder, "trajectory.json"), { force: true });
    await removeEmpty(join(folder, "artifacts"), folder);
  }
}

/** Removes folders that hold nothing. One that is not empty, or was never made, is left alone. */
export async function removeEmpty(...folders: readonly string[]): Promise<void> {
  for (const folder of folders) await rmdir(folder).catch(() => {});
}

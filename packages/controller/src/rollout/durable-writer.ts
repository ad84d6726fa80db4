import type { RolloutRecord } from "@osmosis/protocol";

/** Resolves when the rollout is durable. */
export type DurableWriter = (rollout: RolloutRecord) => Promise<void>;

/** Writes what has gathered while the last write was under way in one go. */
export function batchedWriter(record: (rollouts: readonly RolloutRecord[]) => Promise<void>): DurableWriter {
  let waiting: RolloutRecord[] = [];
  let batch: Promise<void> | undefined;
  let writing: Promise<void> = Promise.resolve();
  return (rollout) => {
    waiting.push(rollout);
    batch ??= writing = writing
      .catch(() => undefined)
      .then(() => {
        const rollouts = waiting;
        waiting = [];
        batch = undefined;
        return record(rollouts);
      });
    return batch;
  };
}

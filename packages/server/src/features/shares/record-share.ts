import type { RolloutRecord, ShareTask } from "@osmosis/protocol";
import { jsonb } from "../../database/columns.ts";
import { keepRollouts } from "../worker-api/records.ts";
import { leaseEnd, type LeaseParts } from "../worker-api/lease.ts";
import { lockHeldShare, readHeldShare, type ShareLease } from "./share-lease.ts";

/**
 * Keeps rollouts of a share. Each is kept once, whoever recorded it first; the share is done when none is left.
 *
 * @throws {OsmosisError} CONFLICT when the lease is lost.
 */
export async function recordShare(
  parts: LeaseParts,
  lease: ShareLease,
  rollouts: readonly RolloutRecord[],
): Promise<void> {
  const { db, now } = parts;
  const { run_id: runId } = await readHeldShare(db, lease, now());
  await keepRollouts(parts, { runId, rollouts }, async (transaction) => {
    const { share } = await lockHeldShare(transaction, lease, now());
    const left = new Map(share.tasks.map((task) => [task.rollout_id, task]));
    const wanted = rollouts.filter((rollout) => left.delete(taskIdOf(rollout)));
    await transaction
      .updateTable("run_shares")
      .set({ tasks: jsonb<readonly ShareTask[]>([...left.values()]), lease_expires_at: leaseEnd(parts) })
      .where("id", "=", share.id)
      .execute();
    return { wanted, shareId: share.id, worker: share.worker };
  });
  parts.bell.ring();
}

/** A rollout whose server still held an earlier execution carries a suffix. */
function taskIdOf({ rollout_id: id }: RolloutRecord): string {
  return id.replace(/-a\d+$/, "");
}

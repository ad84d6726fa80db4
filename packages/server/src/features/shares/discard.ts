import type { Platform } from "../../platform.ts";

/** Removes the shares of a run that has ended, and the weights that went with them. */
export async function discardShares(
  { db, blobs }: Pick<Platform, "db" | "blobs">,
  runId: string,
): Promise<void> {
  const ended = await db
    .selectFrom("runs")
    .select("id")
    .where("id", "=", runId)
    .where("completed_at", "is not", null)
    .executeTakeFirst();
  if (ended === undefined) return;
  const files = await db.transaction().execute(async (transaction) => {
    await transaction.deleteFrom("run_shares").where("run_id", "=", runId).execute();
    await transaction.deleteFrom("run_weights").where("run_id", "=", runId).execute();
    return await transaction
      .deleteFrom("run_files")
      .where("run_id", "=", runId)
      .where("path", "like", "weights/%")
      .returning("key")
      .execute();
  });
  // Killed here, the bytes belong to nobody: the sweep finds them.
  for (const { key } of files) await blobs.delete(key);
}

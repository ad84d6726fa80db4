import { RolloutRecord, type ShareTask } from "@osmosis/protocol";
import { sql } from "kysely";
import { jsonb } from "../../database/columns.ts";
import type { StoredFile } from "../models/tables.ts";
import { bodies } from "../worker-api/files.ts";
import { lockLeasedRun, readLeasedRun, type Lease, type LeaseParts } from "../worker-api/lease.ts";
import { uploadedFiles } from "../worker-api/records.ts";
import { isHeld, isOpen } from "./share-lease.ts";

/** Records that one answer holds at most: their bodies are long. */
const COLLECTED_AT_ONCE = 64;

/** What the worker does that holds the run. Each throws CONFLICT when its lease is lost. */

/**
 * Offers rollouts to other workers. What was offered under an earlier lease is forgotten, and so is what is done or was
 * taken back: whoever published that has heard of it. The last worker of a share may still be telling its log.
 */
export async function publishShares(
  parts: LeaseParts,
  lease: Lease,
  shares: readonly {
    readonly share_id: string;
    readonly phase: "eval" | "train" | "validation";
    readonly step: number;
    readonly tasks: readonly ShareTask[];
  }[],
): Promise<void> {
  const { db, now, bell } = parts;
  if (shares.length === 0) return;
  await db.transaction().execute(async (transaction) => {
    await lockLeasedRun(transaction, lease, now());
    await transaction
      .deleteFrom("run_shares")
      .where("run_id", "=", lease.runId)
      .where((eb) =>
        eb.or([
          eb("holder_token", "!=", lease.token),
          eb("withdrawn", "=", true),
          eb.and([
            eb(sql`jsonb_array_length(tasks)`, "=", 0),
            eb.or([eb("lease_expires_at", "is", null), eb("lease_expires_at", "<=", now())]),
          ]),
        ]),
      )
      // Published by this very call, whose answer was lost.
      .where(
        "id",
        "not in",
        shares.map(({ share_id: id }) => id),
      )
      .execute();
    await transaction
      .insertInto("run_shares")
      .values(
        shares.map(({ share_id: id, phase, step, tasks }) => ({
          id,
          run_id: lease.runId,
          holder_token: lease.token,
          phase,
          step,
          tasks: jsonb<readonly ShareTask[]>(tasks),
          created_at: now(),
        })),
      )
      .onConflict((conflict) => conflict.doNothing())
      .execute();
  });
  bell.ring();
}

/** The rollouts of a share that nobody works on, for the holder to run itself; null while somebody does. */
export async function withdrawShare(
  parts: LeaseParts,
  lease: Lease,
  shareId: string,
): Promise<string[] | null> {
  const { db, now } = parts;
  return db.transaction().execute(async (transaction) => {
    await lockLeasedRun(transaction, lease, now());
    const share = await transaction
      .selectFrom("run_shares as s")
      .select(["s.tasks", isHeld(now()).as("isHeld")])
      .where("id", "=", shareId)
      .where("run_id", "=", lease.runId)
      .forUpdate()
      .executeTakeFirst();
    if (share === undefined) return [];
    if (share.isHeld) return null;
    await transaction.updateTable("run_shares").set({ withdrawn: true }).where("id", "=", shareId).execute();
    return share.tasks.map(({ rollout_id: id }) => id);
  });
}

/** Waits for what others recorded. The rows are numbered under the lock of the run, so none appears behind the cursor. */
export async function collectShared(
  parts: LeaseParts,
  lease: Lease,
  wanted: {
    readonly after: number | null;
    readonly knownOpen: number;
    readonly waitMs: number;
    readonly signal: AbortSignal;
  },
): Promise<{ after: number; rollouts: RolloutRecord[]; open: number }> {
  const { db, now, bell } = parts;
  const end = now().getTime() + wanted.waitMs;
  for (;;) {
    await readLeasedRun(db, lease, now());
    const open = await openShares(parts, lease);
    if (wanted.after === null) return { after: await lastNumber(parts, lease), rollouts: [], open };
    const rows = await db
      .selectFrom("run_rollouts")
      .select(["number", "body_key", "body_start", "body_end"])
      .where("run_id", "=", lease.runId)
      .where("share_id", "is not", null)
      .where("number", ">", wanted.after)
      .orderBy("number")
      .limit(COLLECTED_AT_ONCE)
      .execute();
    const leftMs = end - now().getTime();
    if (rows.length > 0 || open > wanted.knownOpen || leftMs <= 0 || wanted.signal.aborted) {
      const rollouts = await recordsAt(parts, rows);
      return { after: rows.at(-1)?.number ?? wanted.after, rollouts, open };
    }
    await bell.wait(Math.min(leftMs, 1000), wanted.signal);
  }
}

async function recordsAt(
  { blobs }: LeaseParts,
  places: Parameters<typeof bodies>[1],
): Promise<RolloutRecord[]> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bodies(blobs, places)) chunks.push(chunk);
  const lines = Buffer.concat(chunks).toString().split("\n");
  return lines.filter((line) => line !== "").map((line) => RolloutRecord.parse(JSON.parse(line)));
}

async function openShares({ db, now }: LeaseParts, lease: Lease): Promise<number> {
  const { open } = await db
    .selectFrom("run_shares as s")
    .select((eb) => eb.fn.countAll<number>().as("open"))
    .where("run_id", "=", lease.runId)
    .where("holder_token", "=", lease.token)
    .where(isOpen(now()))
    .executeTakeFirstOrThrow();
  return open;
}

async function lastNumber({ db }: LeaseParts, lease: Lease): Promise<number> {
  const { last } = await db
    .selectFrom("run_rollouts")
    .select((eb) => eb.fn.max<number | null>("number").as("last"))
    .where("run_id", "=", lease.runId)
    .executeTakeFirstOrThrow();
  return last ?? 0;
}

/** Names the newest weights, and deletes all but those before them, which somebody may be fetching. */
export async function publishWeights(
  parts: LeaseParts,
  lease: Lease,
  weights: { readonly version: number; readonly method: "lora" | "full"; readonly files: readonly string[] },
): Promise<void> {
  const { db, blobs, now } = parts;
  const { version, method } = weights;
  const old = await db.transaction().execute(async (transaction) => {
    await lockLeasedRun(transaction, lease, now());
    const files = await uploadedFiles(lease.runId, `weights/${version}`, weights.files, transaction);
    const former = await transaction
      .selectFrom("run_weights")
      .select("version")
      .where("run_id", "=", lease.runId)
      .executeTakeFirst();
    const state = { version, method, files: jsonb<readonly StoredFile[]>(files) };
    await transaction
      .insertInto("run_weights")
      .values({ run_id: lease.runId, ...state })
      .onConflict((conflict) => conflict.column("run_id").doUpdateSet(state))
      .execute();
    // Told again, because no answer came: those before them are still being fetched.
    if (former?.version === version) return [];
    return await transaction
      .deleteFrom("run_files")
      .where("run_id", "=", lease.runId)
      .where("path", "like", "weights/%")
      .where("path", "not like", `weights/${version}/%`)
      .where("path", "not like", `weights/${former?.version ?? version}/%`)
      .returning("key")
      .execute();
  });
  for (const { key } of old) await blobs.delete(key);
}

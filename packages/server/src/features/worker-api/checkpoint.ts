import { randomUUID } from "node:crypto";
import { OsmosisError, type workerRoutes } from "@osmosis/protocol";
import type { z } from "zod";
import { jsonb } from "../../database/columns.ts";
import { appendLog } from "../logs/store.ts";
import { markCheckpoints, modelsInUse, removeCheckpoints } from "../models/kept-checkpoints.ts";
import type { StoredFile } from "../models/tables.ts";
import { lockLeasedRun, type Lease, type LeaseParts } from "./lease.ts";
import { uploadedFiles } from "./records.ts";

/**
 * Makes a trained model of uploaded files: of a step once, the newest files count. In the same transaction the best and
 * the last checkpoint are marked anew, and what `keep_checkpoints` does not keep is taken away.
 *
 * @returns the model's name
 */
export async function registerCheckpoint(
  parts: LeaseParts,
  lease: Lease,
  body: z.output<NonNullable<typeof workerRoutes.checkpoint.body>>,
): Promise<string> {
  const { db, blobs, now } = parts;
  const { name, removed } = await db.transaction().execute(async (transaction) => {
    const run = await lockLeasedRun(transaction, lease, now());
    if (run.kind !== "training" || run.model.type !== "local" || !("training" in run.config)) {
      throw new OsmosisError("VALIDATION", `The run ${run.name} trains no model.`);
    }
    const prefix = `checkpoints/${body.step}`;
    const files = await uploadedFiles(lease.runId, prefix, body.files, transaction);
    if (files.length === 0) throw new OsmosisError("VALIDATION", "A checkpoint needs files.");
    const former = await transaction
      .selectFrom("trained_models")
      .select(["id", "files"])
      .where("run_id", "=", run.id)
      .where("step", "=", body.step)
      .forUpdate()
      .executeTakeFirst();
    const modelName = `${run.name}-step-${body.step}`;
    const state = {
      method: body.method,
      reward: body.reward,
      validation_reward: body.validation_reward,
      files_removed_at: null,
      size_bytes: files.reduce((sum, file) => sum + file.size_bytes, 0),
      files: jsonb<readonly StoredFile[]>(files),
    };
    await transaction
      .insertInto("trained_models")
      .values({
        id: randomUUID(),
        workspace_id: run.workspace_id,
        run_id: run.id,
        run_name: run.name,
        name: modelName,
        base_model: run.model.base_model,
        base_files: jsonb<readonly StoredFile[]>(run.model.base_files),
        step: body.step,
        created_at: now(),
        ...state,
      })
      .onConflict((conflict) => conflict.columns(["run_id", "step"]).doUpdateSet(state))
      .execute();
    const keys = new Set(files.map((file) => file.key));
    // A run that waits or goes on with the former files keeps them; the sweep deletes them later.
    const isFormerUsed = former !== undefined && (await modelsInUse(transaction, [former.id])).has(former.id);
    const replaced = isFormerUsed ? [] : (former?.files ?? []).filter((file) => !keys.has(file.key));
    await markCheckpoints(transaction, run.id);
    const old = await removeCheckpoints(transaction, {
      runId: run.id,
      keep: run.config.advanced.keep_checkpoints,
      now: now(),
    });
    if (old.steps.length > 0) {
      await appendLog(transaction, run.id, [
        {
          timestamp: now().toISOString(),
          level: "info",
          step: `step ${body.step}`,
          message: `keep_checkpoints: removed the files of the checkpoints of steps ${old.steps.join(", ")}.`,
        },
      ]);
    }
    return { name: modelName, removed: [...replaced.map(({ key }) => key), ...old.keys] };
  });
  // Killed here, the bytes belong to nobody: the sweep finds them.
  for (const key of removed) await blobs.delete(key);
  return name;
}

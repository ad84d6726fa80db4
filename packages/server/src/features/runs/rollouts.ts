import {
  OsmosisError,
  RolloutRecord,
  type PageQuery,
  type RolloutDetail,
  type RolloutOutcome,
  type RolloutSummary,
} from "@osmosis/protocol";
import { sql, type Kysely, type Selectable } from "kysely";
import type { z } from "zod";
import type { BlobStore } from "../../blobs/blob-store.ts";
import type { Tables } from "../../database/tables.ts";

type RolloutRow = Selectable<Tables["run_rollouts"]>;

type RolloutQuery = PageQuery & {
  phase?: RolloutSummary["phase"] | undefined;
  step?: number | undefined;
  outcome?: RolloutOutcome | undefined;
};

/** Those of the newest step first; inside a step by row and attempt. */
export async function listRollouts(
  db: Kysely<Tables>,
  runId: string,
  query: RolloutQuery,
): Promise<{ items: RolloutSummary[]; total: number }> {
  const { total } = await matching(db, runId, query)
    .select(sql<number>`count(*)::int`.as("total"))
    .executeTakeFirstOrThrow();
  const rows = await pageOfRollouts(db, runId, query).execute();
  return { items: rows.map(summaryOf), total };
}

/** Without executing it: the order is that of an index, which a test looks at. */
export function pageOfRollouts(db: Kysely<Tables>, runId: string, query: RolloutQuery) {
  return matching(db, runId, query)
    .selectAll()
    .orderBy("step", "desc")
    .orderBy("phase")
    .orderBy("row_index")
    .orderBy("sample_index")
    .orderBy("number")
    .limit(query.limit)
    .offset(query.offset);
}

function matching(db: Kysely<Tables>, runId: string, { phase, step, outcome }: RolloutQuery) {
  return db
    .selectFrom("run_rollouts")
    .where("run_id", "=", runId)
    .$if(phase !== undefined, (query) => query.where("phase", "=", phase ?? "eval"))
    .$if(step !== undefined, (query) => query.where("step", "=", step ?? 0))
    .$if(outcome !== undefined, (query) => query.where("outcome", "=", outcome ?? "ok"));
}

/**
 * A rollout with its conversation, by its id or by what follows the run's own in it: `eval-s0-r8-n0`.
 *
 * @throws {OsmosisError} NOT_FOUND.
 */
export async function getRollout(
  parts: { readonly db: Kysely<Tables>; readonly blobs: BlobStore },
  runId: string,
  rolloutId: string,
): Promise<z.input<typeof RolloutDetail>> {
  const row = await parts.db
    .selectFrom("run_rollouts")
    .selectAll()
    .where("run_id", "=", runId)
    .where("rollout_id", "in", [rolloutId, `${runId}-${rolloutId}`])
    .executeTakeFirst();
  const found =
    row === undefined
      ? undefined
      : await parts.blobs.get(row.body_key, { start: row.body_start, end: row.body_end });
  if (row === undefined || found === undefined) {
    throw new OsmosisError("NOT_FOUND", `The run has no rollout ${rolloutId}.`, {
      hint: "See the run's list of rollouts for their ids.",
    });
  }
  const record = RolloutRecord.parse(JSON.parse(await new Response(found.body).text()));
  return {
    rollout: summaryOf(row),
    label: record.label,
    messages: record.messages,
    metrics: record.metrics,
    trajectory: record.trajectory,
  };
}

function summaryOf(row: RolloutRow): RolloutSummary {
  return {
    id: row.rollout_id,
    phase: row.phase,
    step: row.step,
    row_index: row.row_index,
    sample_index: row.sample_index,
    outcome: row.outcome,
    reward: row.reward,
    error: row.error,
    prompt_tokens: row.prompt_tokens,
    completion_tokens: row.completion_tokens,
    model_calls: row.model_calls,
    duration_ms: row.duration_ms,
    created_at: row.created_at.toISOString(),
  };
}

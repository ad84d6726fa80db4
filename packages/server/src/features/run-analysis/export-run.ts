import { Readable } from "node:stream";
import { OsmosisError, type ExportQuery } from "@osmosis/protocol";
import { sql, type Kysely } from "kysely";
import type { Tables } from "../../database/tables.ts";
import type { Platform } from "../../platform.ts";
import type { RunRow } from "../runs/run-rows.ts";
import { bodies } from "../worker-api/files.ts";
import { csvLine } from "./csv.ts";

/** Rows that are in memory at once. */
const PAGE = 500;

type Parts = Pick<Platform, "db" | "blobs">;

/** A file as a stream, and how many lines of data it will have. */
export type RunExport = { readonly rows: number; readonly body: ReadableStream<Uint8Array> };

/**
 * Everything that a run recorded until now, read while it is sent: a page of rows at a time, conversations straight from
 * their blobs.
 *
 * @throws {OsmosisError} VALIDATION for the metrics of an evaluation, which has no steps.
 */
export async function exportRun(parts: Parts, row: RunRow, query: ExportQuery): Promise<RunExport> {
  if (query.what === "rollouts") return await exportRollouts(parts, row, query.format);
  if (row.kind === "training") return await exportSteps(parts, row, query.format);
  throw new OsmosisError("VALIDATION", "An evaluation has no metrics by step.", {
    hint: "Export its rollouts (--what rollouts); `osmosis eval info NAME -o FILE` writes its results.",
  });
}

async function exportSteps({ db }: Parts, row: RunRow, format: ExportQuery["format"]): Promise<RunExport> {
  const last = row.committed_steps;
  const keys = format === "csv" ? await keysOf(db, row.id, last) : [];
  async function* lines(): AsyncGenerator<string> {
    if (format === "csv") yield csvLine(["step", "committed_at", "examples", ...keys]);
    for (let after = 0; after < last; after += PAGE) {
      const steps = await db
        .selectFrom("run_steps")
        .select(["step", "metrics", "examples", "created_at"])
        .where("run_id", "=", row.id)
        .where("step", ">", after)
        .where("step", "<=", Math.min(last, after + PAGE))
        .orderBy("step")
        .execute();
      for (const { step, metrics, examples, created_at } of steps) {
        const committed_at = created_at.toISOString();
        yield format === "csv"
          ? csvLine([step, committed_at, examples, ...keys.map((key) => metrics[key])])
          : `${JSON.stringify({ step, committed_at, examples, metrics })}\n`;
      }
    }
  }
  return { rows: last, body: streamOf(lines()) };
}

/** Every metric that some step has. */
async function keysOf(db: Kysely<Tables>, runId: string, last: number): Promise<string[]> {
  const { rows } = await sql<{ key: string }>`
    select distinct jsonb_object_keys(metrics) as key from run_steps where run_id = ${runId} and step <= ${last}
  `.execute(db);
  return rows.map(({ key }) => key).sort();
}

const COLUMNS = [
  "rollout_id",
  "phase",
  "step",
  "row_index",
  "sample_index",
  "outcome",
  "reward",
  "error",
  "prompt_tokens",
  "completion_tokens",
  "model_calls",
  "prefix_breaks",
  "duration_ms",
] as const;

async function exportRollouts(parts: Parts, row: RunRow, format: ExportQuery["format"]): Promise<RunExport> {
  const { db } = parts;
  const { rows, last } = await db
    .selectFrom("run_rollouts")
    .select([sql<number>`count(*)::int`.as("rows"), sql<number | null>`max(number)`.as("last")])
    .where("run_id", "=", row.id)
    .executeTakeFirstOrThrow();
  const page = async (after: number) =>
    await db
      .selectFrom("run_rollouts")
      .selectAll()
      .where("run_id", "=", row.id)
      .where("number", ">", after)
      .where("number", "<=", last ?? 0)
      .orderBy("number")
      .limit(PAGE)
      .execute();
  async function* chunks(): AsyncGenerator<string | Uint8Array> {
    if (format === "csv") yield csvLine([...COLUMNS, "created_at"]);
    let after = -1;
    for (let found = await page(after); found.length > 0; found = await page(after)) {
      // The records as they are kept: with conversation, tokens and log probabilities. One that is gone breaks the answer
      // off, so that whoever reads it knows that it is not whole.
      if (format === "jsonl") yield* bodies(parts.blobs, found);
      else
        for (const one of found)
          yield csvLine([...COLUMNS.map((name) => one[name]), one.created_at.toISOString()]);
      after = found.at(-1)?.number ?? after;
    }
  }
  return { rows, body: streamOf(chunks()) };
}

function streamOf(chunks: AsyncGenerator<string | Uint8Array>): ReadableStream<Uint8Array> {
  async function* bytes(): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) yield typeof chunk === "string" ? Buffer.from(chunk) : chunk;
  }
  // Node's and the DOM's declarations of the same web stream differ in name only.
  return Readable.toWeb(Readable.from(bytes(), { objectMode: false })) as ReadableStream<Uint8Array>;
}

/**
 * An evaluation as files that the official command line downloads: first it asks for a manifest with their sizes, then for
 * a URL of each. What is written for that is swept an hour later, because no row names it.
 */
import { randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import {
  OsmosisError,
  RolloutRecord,
  atifFromMessages,
  runFileRoutes as routes,
  type RunFileType,
} from "@osmosis/protocol";
import type { Selectable } from "kysely";
import type { z } from "zod";
import type { Tables } from "../../database/tables.ts";
import type { Router } from "../../http/router.ts";
import type { Platform } from "../../platform.ts";
import { resultsOf } from "./results.ts";
import { getRun, type RunRow } from "./run-rows.ts";
import { evalMetricsView } from "./views.ts";

type Parts = Pick<Platform, "db" | "blobs" | "blobUrls" | "now">;
type RolloutRow = Selectable<Tables["run_rollouts"]>;
type Manifest = z.output<typeof routes.manifest.response>;
type Ranges = z.output<NonNullable<typeof routes.manifest.query>>["rows"];

export function serveRunFiles(platform: Platform, router: Router): void {
  const { db, blobUrls } = platform;

  router.on(routes.manifest, async ({ workspace, params, query }) => {
    const row = await getRun(db, workspace, { kind: "evaluation", nameOrId: params.name });
    const files = await filesOf(platform, row, new Set(query.types), query.rows);
    const bytes = files.reduce((sum, { size }) => sum + size, 0);
    return { files, totals: { files: files.length, bytes } };
  });

  router.on(routes.urls, async ({ workspace, params, body }) => {
    const row = await getRun(db, workspace, { kind: "evaluation", nameOrId: params.name });
    const items = [];
    for (const { path, token } of body.items) {
      const key = await keyOf(platform, row, path, token);
      items.push({ path, token, url: blobUrls.sign({ method: "GET", key }) });
    }
    return { items, expires_in: blobUrls.lifetimeSeconds };
  });
}

async function filesOf(
  parts: Parts,
  row: RunRow,
  types: ReadonlySet<RunFileType>,
  ranges: Ranges,
): Promise<Manifest["files"]> {
  const files: Manifest["files"] = [];
  // These change while the run goes on: what the manifest has measured is kept as it is, by its hash.
  const keep = async (path: string, body: string | AsyncGenerator<string>) => {
    const aside = `runs/${row.id}/downloads/${randomUUID()}`;
    const { sha256: token, sizeBytes: size } = await parts.blobs.put(
      aside,
      typeof body === "string" ? Buffer.from(body) : bytesOf(body),
    );
    await parts.blobs.compose(snapshotKey(row.id, token), [aside]);
    await parts.blobs.delete(aside);
    files.push({ path, token, size });
  };
  if (types.has("metrics")) await keep("metrics.json", await metricsText(parts, row));
  if (types.has("logs")) await keep("logs.txt", logText(parts, row.id));
  if (types.has("trajectories")) {
    const lines: string[] = [];
    const trajectories: Manifest["files"] = [];
    for (const one of await rolloutsOf(parts, row.id, ranges)) {
      lines.push(`${JSON.stringify(summaryOf(one))}\n`);
      const size = Buffer.byteLength(await trajectoryText(parts, row, one));
      trajectories.push({ path: trajectoryPath(one), token: one.rollout_id, size });
    }
    await keep("summary.jsonl", lines.join(""));
    files.push(...trajectories);
  }
  return files;
}

/** @throws {OsmosisError} NOT_FOUND for what no manifest named, or one of an hour ago. */
async function keyOf(parts: Parts, row: RunRow, path: string, token: string): Promise<string> {
  const { db, blobs } = parts;
  if (/^[0-9a-f]{64}$/.test(token)) {
    const key = snapshotKey(row.id, token);
    if ((await blobs.stat(key)) !== undefined) return key;
  } else {
    const one = await db
      .selectFrom("run_rollouts")
      .selectAll()
      .where("run_id", "=", row.id)
      .where("rollout_id", "=", token)
      .executeTakeFirst();
    if (one !== undefined && trajectoryPath(one) === path) {
      const key = `runs/${row.id}/downloads/${path}`;
      await blobs.put(key, Buffer.from(await trajectoryText(parts, row, one)));
      return key;
    }
  }
  throw new OsmosisError("NOT_FOUND", `The run ${row.name} has no file ${path} any more.`, {
    hint: "Download again: the list of files is an hour old, or of another run.",
  });
}

const snapshotKey = (runId: string, hash: string): string => `runs/${runId}/downloads/${hash}`;

const trajectoryPath = ({ row_index, sample_index }: RolloutRow): string =>
  `trajectories/row_${row_index}_run_${sample_index}.json`;

/** By row and attempt; of what ran twice the last. */
async function rolloutsOf({ db }: Parts, runId: string, ranges: Ranges): Promise<RolloutRow[]> {
  let asked = db.selectFrom("run_rollouts").selectAll().where("run_id", "=", runId);
  if (ranges !== undefined) {
    asked = asked.where((by) => by.or(ranges.map(({ first, last }) => by.between("row_index", first, last))));
  }
  const rows = await asked.orderBy("row_index").orderBy("sample_index").orderBy("number").execute();
  return [...new Map(rows.map((one) => [trajectoryPath(one), one])).values()];
}

/** The agent's own document, else one made of the conversation. */
async function trajectoryText({ blobs }: Parts, run: RunRow, one: RolloutRow): Promise<string> {
  const found = await blobs.get(one.body_key, { start: one.body_start, end: one.body_end });
  if (found === undefined) throw new Error(`the blob ${one.body_key} is gone`);
  const record = RolloutRecord.parse(JSON.parse(await new Response(found.body).text()));
  const trajectory =
    record.trajectory ??
    atifFromMessages({
      rolloutId: record.rollout_id,
      agent: { name: run.rollout, version: run.commit_sha },
      messages: record.messages,
      label: record.label,
      reward: record.reward,
      sampleMetrics: record.metrics,
    });
  return `${JSON.stringify(trajectory, null, 2)}\n`;
}

function summaryOf(one: RolloutRow) {
  return {
    row_index: one.row_index,
    run_index: one.sample_index,
    rollout_id: one.rollout_id,
    outcome: one.outcome,
    reward: one.reward,
    error: one.error,
    prompt_tokens: one.prompt_tokens,
    completion_tokens: one.completion_tokens,
    duration_ms: one.duration_ms,
    trajectory: trajectoryPath(one),
  };
}

async function metricsText({ db, now }: Parts, row: RunRow): Promise<string> {
  const results = row.results ?? (await resultsOf(db, row.id));
  const { overview, reward_stats, pass_at_k } = evalMetricsView(row, results, now());
  const { duration_ms, ...counts } = overview;
  const document = {
    eval_run: {
      id: row.id,
      name: row.name,
      status: row.status,
      dataset_name: row.dataset_name,
      model_name: row.model.name,
      rollout_name: row.rollout,
      duration_ms,
      started_at: row.started_at?.toISOString() ?? null,
      completed_at: row.completed_at?.toISOString() ?? null,
    },
    summary: { ...counts, reward_stats, pass_at_k },
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}

/** So many lines are read at once: a rollout may print without end. */
const LINES_AT_ONCE = 5000;

async function* logText({ db }: Parts, runId: string): AsyncGenerator<string> {
  for (let after = 0; ;) {
    const lines = await db
      .selectFrom("log_lines")
      .select(["id", "timestamp", "level", "step", "message"])
      .where("subject_id", "=", runId)
      .where("id", ">", after)
      .orderBy("id")
      .limit(LINES_AT_ONCE)
      .execute();
    yield lines
      .map(
        ({ timestamp, level, step, message }) => `${timestamp.toISOString()} ${level} [${step}] ${message}\n`,
      )
      .join("");
    if (lines.length < LINES_AT_ONCE) return;
    after = lines.at(-1)?.id ?? after;
  }
}

function bytesOf(texts: AsyncGenerator<string>): ReadableStream<Uint8Array> {
  // Node's and the DOM's declarations of the same web stream differ in name only.
  return Readable.toWeb(Readable.from(texts, { objectMode: false })) as ReadableStream<Uint8Array>;
}

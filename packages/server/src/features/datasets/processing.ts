import { faultText, validateDataset, type DatasetReport } from "@osmosis/controller";
import { OsmosisError, type DatasetRow, type LogEntry } from "@osmosis/protocol";
import { jsonb, storableText } from "../../database/columns.ts";
import { jsonLine } from "../../json-line.ts";
import type { Platform } from "../../platform.ts";
import { DATASET_QUEUE, DatasetJob } from "../../queue/job-types.ts";
import type { Bell } from "../../queue/bell.ts";
import { work } from "../../queue/work.ts";
import { appendLog } from "../logs/store.ts";
import { rowsKey, sourceKey } from "./upload.ts";

/** How many faults the status of a data set tells; its log tells more. */
const FAULTS_IN_STATUS = 3;

type Parts = Pick<Platform, "db" | "queue" | "blobs" | "now" | "log"> & {
  readonly bell: Bell;
  /** No other server works on this database, so whatever was under way before the start is nobody's. */
  readonly isAlone: boolean;
};

/**
 * Reads uploaded files in the background until it is disposed: checks them, counts and previews their rows, and keeps
 * the rows in the form that rollouts get. May be repeated at any point.
 */
export async function processDatasets(parts: Parts): Promise<AsyncDisposable> {
  if (parts.isAlone) await releaseInterrupted(parts);
  return work(parts, DATASET_QUEUE, {
    bell: parts.bell,
    async handle(payload, signal) {
      await processVersion(parts, DatasetJob.parse(payload).version_id, signal);
    },
    async onGivenUp(payload, error) {
      await parts.db
        .updateTable("dataset_versions")
        .set({
          status: "error",
          error: storableText(
            error instanceof OsmosisError
              ? `The server failed to read the file: ${error.message} ${error.hint ?? ""}`.trim()
              : "The server failed to read the file. Upload it again; the cause is in the server's log.",
          ),
          updated_at: parts.now(),
        })
        .where("id", "=", DatasetJob.parse(payload).version_id)
        .where("status", "=", "processing")
        .execute();
    },
  });
}

async function releaseInterrupted({ db, queue }: Parts): Promise<void> {
  const interrupted = await db
    .selectFrom("dataset_versions")
    .select("id")
    .where("status", "=", "processing")
    .execute();
  for (const { id } of interrupted) await queue.release(DATASET_QUEUE, id);
}

async function processVersion(parts: Parts, versionId: string, signal: AbortSignal): Promise<void> {
  const { db, now } = parts;
  const version = await db
    .selectFrom("dataset_versions")
    .innerJoin("datasets", "datasets.id", "dataset_versions.dataset_id")
    .select(["datasets.id", "dataset_versions.id as version_id", "format", "size_bytes", "status"])
    .where("dataset_versions.id", "=", versionId)
    .executeTakeFirst();
  if (version === undefined || version.status !== "processing") return;
  const report = await readVersion(parts, version, signal);
  const entries = logOf(report, now());
  await db.transaction().execute(async (transaction) => {
    await transaction
      .updateTable("dataset_versions")
      .set({
        status: report.isValid ? "uploaded" : "error",
        row_count: report.rowCount,
        preview: jsonb(report.preview),
        error: report.isValid ? null : storableText(statusText(report)),
        updated_at: now(),
      })
      .where("id", "=", versionId)
      .execute();
    await appendLog(transaction, version.id, entries);
  });
}

/** Checks the file and, when it is good, stores its rows. */
async function readVersion(
  { blobs }: Parts,
  version: { id: string; version_id: string; format: "jsonl" | "csv" | "parquet"; size_bytes: number },
  signal: AbortSignal,
): Promise<DatasetReport> {
  const key = sourceKey(version);
  const faulty = new AbortController();
  const lines = new TransformStream<Uint8Array, Uint8Array>();
  const writer = lines.writable.getWriter();
  const storing = blobs.put(rowsKey(version), lines.readable, {
    signal: AbortSignal.any([signal, faulty.signal]),
  });
  // Whichever side fails first is reported below; the other one only must not go unheard.
  storing.catch(() => {});
  writer.closed.catch(() => {});
  let batch = "";
  const flush = async () => {
    await Promise.race([writer.write(Buffer.from(batch)), storing]);
    batch = "";
  };
  try {
    const report = await validateDataset({
      bytes: {
        sizeBytes: version.size_bytes,
        async *open(range) {
          const found = await blobs.get(key, range);
          if (found === undefined) throw new Error(`the file ${key} is gone`);
          yield* found.body;
        },
      },
      format: version.format,
      signal,
      async onRow(row: DatasetRow) {
        batch += `${jsonLine(row)}\n`;
        if (batch.length > 256 * 1024) await flush();
      },
    });
    if (report.isValid) {
      await flush();
      await writer.close();
      await storing;
    }
    return report;
  } finally {
    faulty.abort(new Error("the file has faults"));
    await writer.abort().catch(() => {});
    await storing.catch(() => {});
  }
}

function statusText({ faults, faultCount }: DatasetReport): string {
  const told = faults.slice(0, FAULTS_IN_STATUS).map(faultText);
  const more = faultCount - told.length;
  if (more > 0) told.push(`${more} more ${more === 1 ? "fault is" : "faults are"} in the data set's log.`);
  return told.join("\n");
}

function logOf({ isValid, rowCount, columns, faults, faultCount }: DatasetReport, now: Date): LogEntry[] {
  const line = (level: LogEntry["level"], message: string, details?: Record<string, unknown>): LogEntry => ({
    timestamp: now.toISOString(),
    level,
    step: "validate",
    message,
    details: details ?? null,
  });
  if (isValid) return [line("info", `Read ${rowCount} rows with the columns ${columns.join(", ")}.`)];
  const untold = faultCount - faults.length;
  return [
    ...faults.map((fault) => line("error", faultText(fault), { line: fault.line, column: fault.column })),
    ...(untold > 0 ? [line("error", `${untold} more faults were counted.`)] : []),
  ];
}

import { OsmosisError } from "@osmosis/protocol";
import { faultText, MAX_FAULTS, readDatasetFile, type DatasetReport } from "@osmosis/controller/dataset";
import { basename, resolve } from "node:path";
import type { Context } from "../context.ts";
import { formatBytes, formatCount } from "../output/format.ts";
import type { DetailResult } from "../output/result.ts";

export type CheckedFile = Awaited<ReturnType<typeof readDatasetFile>> & { readonly path: string };

/**
 * Checks a file by the same rules as the platform.
 *
 * @throws OsmosisError `VALIDATION` with every place that is wrong, up to 20.
 */
export async function checkFile(context: Context, file: string): Promise<CheckedFile> {
  const path = resolve(context.io.cwd, file);
  const report = await readDatasetFile(path, { signal: context.io.interrupted });
  if (report.isValid) return { ...report, path };
  throw new OsmosisError("VALIDATION", `${file} is not a valid data set: ${countText(report)}.`, {
    hint: "Correct the file and run `osmosis dataset validate` again. Nothing was uploaded.",
    details: {
      valid: false,
      file: path,
      file_name: basename(path),
      extension: report.format,
      file_size: report.sizeBytes,
      issues: report.faults.map((fault) => ({ ...fault, message: faultText(fault) })),
      fault_count: report.faultCount,
    },
  });
}

export async function validateFile(context: Context, file: string): Promise<DetailResult> {
  const report = await checkFile(context, file);
  return {
    kind: "detail",
    data: {
      valid: true,
      file: report.path,
      file_name: basename(report.path),
      extension: report.format,
      file_size: report.sizeBytes,
      row_count: report.rowCount,
      columns: report.columns,
      mode: report.mode,
      errors: [],
      warnings: [],
    },
    title: `${file} is a valid data set`,
    fields: [
      ["Rows", formatCount(report.rowCount)],
      ["Columns", report.columns.join(", ")],
      ["Mode", report.mode ?? "–"],
      ["Size", formatBytes(report.sizeBytes)],
    ],
  };
}

function countText(report: DatasetReport): string {
  const { faultCount } = report;
  if (faultCount === 1) return "1 fault";
  return faultCount <= MAX_FAULTS
    ? `${faultCount} faults`
    : `${faultCount} faults, of which the first ${MAX_FAULTS}`;
}

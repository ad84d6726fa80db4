import { createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import {
  EXPORT_ROWS_HEADER,
  OsmosisError,
  exportStreams,
  fillPath,
  type ExportQuery,
} from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { isFileError } from "../output/failure.ts";
import { formatBytes, formatCount } from "../output/format.ts";
import type { OperationResult } from "../output/result.ts";
import { targetFile } from "../output/target-file.ts";
import { makeFolder } from "../output/target-folder.ts";
import { openWorkspaceSession, workspaceStream } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import type { RunKind } from "./kind.ts";

export type ExportOptions = {
  readonly what?: ExportQuery["what"];
  readonly format: ExportQuery["format"];
  readonly output?: string;
  readonly overwrite?: boolean;
};

/** Writes everything that a run recorded beside its final name, and renames it when it is whole. */
export async function exportRun(
  context: Context,
  kind: RunKind,
  name: string,
  { what = kind === "train" ? "metrics" : "rollouts", format, output, overwrite = false }: ExportOptions,
): Promise<OperationResult> {
  const { io } = context;
  const session = await openWorkspaceSession(context);
  const fileName = `${name.replaceAll(/[^A-Za-z0-9_-]/g, "_")}-${what}.${format}`;
  const path = await targetFile(io.cwd, { output, fileName, overwrite });
  const route = kind === "train" ? exportStreams.training : exportStreams.evaluation;
  const response = await workspaceStream(
    context,
    session,
    `${fillPath(route, { name })}?what=${what}&format=${format}`,
  );
  const rows = Number(response.headers.get(EXPORT_ROWS_HEADER));
  const partial = `${path}.partial-${io.processId}`;
  await makeFolder(dirname(path));
  const progress = context.progress();
  let bytes = 0;
  let lines = 0;
  try {
    await pipeline(
      // The same stream; Node's types and the DOM's name it differently.
      Readable.fromWeb(response.body as ReadableStream<Uint8Array>),
      async function* (chunks: AsyncIterable<Uint8Array>) {
        for await (const chunk of chunks) {
          bytes += chunk.byteLength;
          for (const byte of chunk) if (byte === LINE_FEED) lines += 1;
          progress.update({ label: `Exporting ${what}`, done: Math.min(lines, rows), total: rows });
          yield chunk;
        }
      },
      createWriteStream(partial),
      { signal: io.interrupted },
    );
    // A table has a line of names, and may have line ends inside its cells.
    const isWhole = format === "csv" ? lines > rows : lines === rows;
    if (!isWhole) throw brokenOff(name, `${lines} of ${rows} lines came`);
    await rename(partial, path);
  } catch (error) {
    if (io.interrupted.aborted || error instanceof OsmosisError || isFileError(error)) throw error;
    throw brokenOff(name, error instanceof Error ? error.message : String(error));
  } finally {
    progress.stop();
    await rm(partial, { force: true });
  }
  return {
    kind: "operation",
    operation: `${kind}.export`,
    status: "success",
    message: `Exported ${formatCount(rows)} ${what === "metrics" ? "steps" : "rollouts"} of ${name} to ${path} (${formatBytes(bytes)}).`,
    resource: { name, what, format, rows, bytes, output_path: path },
    extras: workspaceExtras(session.workspace),
  };
}

const LINE_FEED = 10;

function brokenOff(name: string, why: string): OsmosisError {
  return new OsmosisError("NETWORK", `The export of ${name} broke off: ${why}.`, {
    hint: "Nothing was written. Run it again.",
  });
}

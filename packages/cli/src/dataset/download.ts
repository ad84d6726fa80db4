import { createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { basename } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";
import { datasetRoutes, OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { formatBytes } from "../output/format.ts";
import type { OperationResult } from "../output/result.ts";
import { targetFile } from "../output/target-file.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";

type DownloadOptions = { readonly output?: string; readonly overwrite?: boolean };

/** Downloads a data set beside its final name and renames it at the end: a broken download leaves nothing. */
export async function downloadDataset(
  context: Context,
  name: string,
  options: DownloadOptions,
): Promise<OperationResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const { io } = context;
  const source = await client.call(datasetRoutes.download, { params: { name } });
  const { output, overwrite = false } = options;
  const path = await targetFile(io.cwd, { output, fileName: basename(source.file_name), overwrite });
  const response = await io.fetch(new URL(source.presigned_url, client.baseUrl), { signal: io.interrupted });
  if (!response.ok || response.body === null) {
    throw new OsmosisError(
      "PLATFORM_ERROR",
      `The download of ${name} was refused: HTTP ${response.status}.`,
      { hint: "Run the command again: it asks for a new link." },
    );
  }
  const partial = `${path}.partial-${io.processId}`;
  let bytes = 0;
  try {
    await pipeline(
      // The same stream; Node's types and the DOM's name it differently.
      Readable.fromWeb(response.body as ReadableStream<Uint8Array>),
      async function* (chunks: AsyncIterable<Uint8Array>) {
        for await (const chunk of chunks) {
          bytes += chunk.byteLength;
          yield chunk;
        }
      },
      createWriteStream(partial),
      { signal: io.interrupted },
    );
    await rename(partial, path);
  } finally {
    await rm(partial, { force: true });
  }
  return {
    kind: "operation",
    operation: "dataset.download",
    status: "success",
    message: `Downloaded ${name} to ${path} (${formatBytes(bytes)}).`,
    resource: { name, output_path: path, bytes_downloaded: bytes },
    extras: workspaceExtras(workspace),
  };
}

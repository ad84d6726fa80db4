import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { join } from "node:path";
import { modelRoutes, OsmosisError, type BaseModel, type Client, type ModelFile } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { sendFile } from "../dataset/transfer.ts";
import { formatBytes } from "../output/format.ts";
import type { Progress } from "../output/progress.ts";

export type UploadedModel = {
  readonly model: BaseModel;
  /** Of all files. */
  readonly sizeBytes: number;
  /** What the platform did not have. */
  readonly sentBytes: number;
};

/** Putting a large model together takes the platform a while. */
const REGISTER_TIMEOUT_MS = 15 * 60_000;

/** Addresses for parts are good for a quarter of an hour; after that new ones are asked for, as long as it moves on. */
const MAX_ROUNDS = 100;

/** Sends the files of a model that the platform does not have yet, and registers it. May be repeated after a failure. */
export async function uploadModel(options: {
  readonly context: Context;
  readonly client: Client;
  readonly progress: Progress;
  readonly name: string;
  readonly folder: string;
  readonly files: readonly string[];
  readonly overwrite: boolean;
}): Promise<UploadedModel> {
  const { client, progress, name, folder, overwrite } = options;
  const files: ModelFile[] = [];
  for (const file of options.files) {
    progress.update({ label: `Hashing ${file} …` });
    files.push(await describe(folder, file, options.context.io.interrupted));
  }
  const body = { model_name: name, files, overwrite };
  const sentBytes = await sendMissing(options, body);
  progress.update({ label: `The platform checks ${name} …` });
  const model = await client.call(modelRoutes.import, { body, timeoutMs: REGISTER_TIMEOUT_MS });
  return { model, sizeBytes: files.reduce((sum, file) => sum + file.size_bytes, 0), sentBytes };
}

async function describe(folder: string, name: string, signal: AbortSignal): Promise<ModelFile> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const chunk of createReadStream(join(folder, name), { signal })) {
    // Without an encoding a stream of a file gives buffers.
    hash.update(chunk as Buffer);
    size += (chunk as Buffer).length;
  }
  return { name, size_bytes: size, sha256: hash.digest("hex") };
}

async function sendMissing(
  { context, client, progress, folder, name }: Parameters<typeof uploadModel>[0],
  body: { readonly model_name: string; readonly files: ModelFile[]; readonly overwrite: boolean },
): Promise<number> {
  let sentBytes = 0;
  let before = Number.POSITIVE_INFINITY;
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const { uploads } = await client.call(modelRoutes.startImport, { body });
    const missing = uploads.reduce((sum, { upload }) => sum + bytesOf(upload), 0);
    if (missing === 0) return sentBytes;
    try {
      let done = 0;
      for (const { name: file, upload } of uploads) {
        await sendFile({
          path: join(folder, file),
          upload,
          baseUrl: client.baseUrl,
          fetch: context.io.fetch,
          signal: context.io.interrupted,
          onProgress: (sent) =>
            progress.update({
              label: `Uploading ${name}`,
              percent: Math.floor((100 * (done + sent)) / missing),
              text: `${formatBytes(done + sent)} of ${formatBytes(missing)}`,
            }),
        });
        done += bytesOf(upload);
      }
      sentBytes += missing;
    } catch (error) {
      const isOver = !(error instanceof OsmosisError) || error.code === "STORAGE" || missing >= before;
      if (isOver || context.io.interrupted.aborted) throw error;
    }
    before = missing;
  }
  throw new OsmosisError("NETWORK", `The upload of ${name} did not come to an end.`, {
    hint: "Run the command again: it goes on where it stopped.",
  });
}

function bytesOf(upload: Parameters<typeof sendFile>[0]["upload"]): number {
  return upload.method === "multipart" ? upload.presigned_urls.reduce((sum, part) => sum + part.size, 0) : 0;
}

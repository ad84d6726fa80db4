import { basename, extname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { datasetRoutes, OsmosisError, type Client, type Dataset } from "@osmosis/protocol";
import { confirmOrRefuse } from "../confirm.ts";
import type { Context } from "../context.ts";
import { formatBytes, formatCount } from "../output/format.ts";
import type { OperationResult } from "../output/result.ts";
import type { Progress } from "../output/progress.ts";
import { SILENCE, patiently } from "../platform/patience.ts";
import { openWorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { datasetRow } from "./row.ts";
import { sendFile } from "./transfer.ts";
import { checkFile, type CheckedFile } from "./validate.ts";

type UploadOptions = { readonly overwrite?: boolean; readonly yes?: boolean };

const POLL_MS = 300;

/**
 * Checks a file, uploads it, and stays until the platform has read it. Ctrl-C takes the half of it back; the data set
 * that was there before stays until the new one is complete.
 */
export async function uploadDataset(
  context: Context,
  file: string,
  options: UploadOptions,
): Promise<OperationResult> {
  const { client, workspace } = await openWorkspaceSession(context);
  const progress = context.progress();
  progress.update({ label: `Checking ${file} …` });
  const checked = await checkFile(context, file).finally(() => progress.stop());
  const name = basename(checked.path, extname(checked.path));
  const created = await createDataset(context, client, { checked, name, options });
  if (created === "declined") {
    return { kind: "operation", operation: "dataset.upload", status: "cancelled", message: "Cancelled." };
  }
  const dataset = await bringBytes(context, client, { created, checked, progress });
  return {
    kind: "operation",
    operation: "dataset.upload",
    status: "success",
    message: `Uploaded ${file} as ${dataset.file_name}: ${formatCount(dataset.row_count)} rows, ${formatBytes(dataset.file_size)}.`,
    resource: datasetRow(dataset),
    nextSteps: [
      { command: `osmosis dataset preview ${dataset.file_name}`, description: "look at the first rows" },
      { command: "osmosis eval submit configs/eval/CONFIG.toml", description: "measure a model on it" },
    ],
    extras: workspaceExtras(workspace),
  };
}

type Created = Awaited<ReturnType<typeof askToCreate>>;

async function askToCreate(
  client: Client,
  { checked, name, overwriteId }: { checked: CheckedFile; name: string; overwriteId?: string },
) {
  return await client.call(datasetRoutes.create, {
    body: {
      file_name: name,
      file_size: checked.sizeBytes,
      extension: checked.format,
      ...(overwriteId === undefined ? {} : { overwrite_dataset_id: overwriteId }),
    },
  });
}

async function createDataset(
  context: Context,
  client: Client,
  { checked, name, options }: { checked: CheckedFile; name: string; options: UploadOptions },
): Promise<Created | "declined"> {
  try {
    return await askToCreate(client, { checked, name });
  } catch (error) {
    const existing = error instanceof OsmosisError ? error.details?.["existing_dataset_id"] : undefined;
    if (typeof existing !== "string") throw error;
    if (options.overwrite !== true) {
      throw new OsmosisError("CONFLICT", `There is a data set named ${name} already.`, {
        hint: "Add --overwrite to replace it, or rename the file. Runs that used the old rows keep their results.",
        details: { existing_dataset_id: existing },
        cause: error,
      });
    }
    const isSure = await confirmOrRefuse(context, {
      isYes: options.yes === true,
      question: `Replace the data set ${name}?`,
      preset: false,
      summary: { "data set": name, file: checked.path, rows: formatCount(checked.rowCount) },
    });
    return isSure ? await askToCreate(client, { checked, name, overwriteId: existing }) : "declined";
  }
}

async function bringBytes(
  context: Context,
  client: Client,
  parts: { created: Created; checked: CheckedFile; progress: Progress },
): Promise<Dataset> {
  const { created, checked, progress } = parts;
  const { io } = context;
  const label = `Uploading ${created.file_name}`;
  const show = (sent: number): void => {
    progress.update({
      label,
      percent: Math.floor((100 * sent) / checked.sizeBytes),
      text: `${formatBytes(sent)} of ${formatBytes(checked.sizeBytes)}`,
    });
  };
  let isComplete = false;
  try {
    const sent = await sendFile({
      path: checked.path,
      upload: created.upload,
      baseUrl: client.baseUrl,
      fetch: io.fetch,
      signal: io.interrupted,
      onProgress: show,
    });
    await client.call(datasetRoutes.complete, {
      params: { id: created.id },
      body: { file_extension: checked.format, ...(sent.length === 0 ? {} : { parts: [...sent] }) },
      timeoutMs: 120_000,
    });
    isComplete = true;
    return await untilRead(context, client, created.file_name, progress);
  } catch (error) {
    if (!isComplete) await giveUp(context, client, created.id);
    throw error;
  } finally {
    progress.stop();
  }
}

/** The platform reads every row before a run may use them. */
async function untilRead(
  context: Context,
  client: Client,
  name: string,
  progress: Progress,
): Promise<Dataset> {
  for (;;) {
    const dataset = await patiently(
      context,
      () => client.call(datasetRoutes.get, { params: { name } }),
      () => progress.update({ label: name, text: SILENCE }),
    );
    switch (dataset.status) {
      case "uploaded":
        return dataset;
      case "error":
      case "cancelled":
        throw new OsmosisError(
          "VALIDATION",
          `The platform could not take ${name}: ${dataset.error ?? dataset.status}.`,
          { hint: `\`osmosis dataset logs ${name}\` says more.`, details: { dataset: datasetRow(dataset) } },
        );
      case "pending":
      case "uploading":
      case "processing":
        progress.update({ label: `The platform reads ${name} …` });
        await delay(POLL_MS, undefined, { signal: context.io.interrupted });
    }
  }
}

/** Tells the platform that no more bytes come. Ctrl-C got us here, perhaps: the call has a signal of its own. */
async function giveUp(context: Context, client: Client, id: string): Promise<void> {
  try {
    await client.call(datasetRoutes.abort, {
      params: { id },
      body: {},
      signal: AbortSignal.timeout(5000),
    });
  } catch {
    context.warn(
      "ABORT_FAILED",
      "The platform could not be told that the upload ended early; it will find out.",
    );
  }
}

import { readdir, realpath, rename, rm, rmdir, stat } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, resolve } from "node:path";
import { holdWeights, modelRoutes, OsmosisError } from "@osmosis/protocol";
import type { z } from "zod";
import type { Context } from "../context.ts";
import { formatBytes } from "../output/format.ts";
import type { Field, NextStep, OperationResult } from "../output/result.ts";
import { shellWord } from "../output/shell-word.ts";
import { makeFolder } from "../output/target-folder.ts";
import { openWorkspaceSession, type WorkspaceSession } from "../platform/session.ts";
import { workspaceExtras } from "../workspace/workspace.ts";
import { downloadFile, sha256Of } from "./file-download.ts";

export type DownloadModelOptions = {
  readonly output?: string;
  readonly overwrite?: boolean;
  /** Makes one model of an adapter and its base. */
  readonly merge?: boolean;
};

type Model = z.infer<typeof modelRoutes.get.response>;

/**
 * Downloads a checkpoint into a folder. The files gather beside it, in `<folder>.partial`, where a later call goes on;
 * the folder appears when each of them is complete and has the SHA-256 that the platform names. With `merge` the base
 * model comes, too, and the folder is a whole model.
 *
 * @throws OsmosisError `CONFLICT` when the folder exists or is around the current one, `NOT_FOUND`, `NETWORK`, `STORAGE`.
 */
export async function downloadModel(
  context: Context,
  name: string,
  options: DownloadModelOptions,
): Promise<OperationResult> {
  const session = await openWorkspaceSession(context);
  const model = await getModel(session, name);
  const hasWeights = holdWeights(model.files);
  if (options.merge === true && isOnlyAdapter(model)) {
    throw new OsmosisError(
      "VALIDATION",
      `${model.model_name} cannot be merged: its base model ${model.base_model} has no weights here.`,
      {
        hint: "Without --merge you get the adapter, which PEFT puts on top of the base where you have that.",
      },
    );
  }
  if (options.merge === true && !hasWeights) {
    throw new OsmosisError(
      "VALIDATION",
      `${model.model_name} has no weights to merge: a trainer by URL holds them.`,
      {
        hint: "Without --merge you get the reference to them.",
      },
    );
  }
  const folder = resolve(context.io.cwd, options.output ?? model.model_name);
  await refuseOccupied(folder, { cwd: context.io.cwd, overwrite: options.overwrite === true });
  const partial = `${folder}.partial`;
  // A whole model has nothing beneath it.
  const isMerged = options.merge === true && model.method === "lora";
  const wanted = isMerged
    ? [...model.base_files.map(inside("base")), ...model.files.map(inside("adapter"))]
    : model.files;
  await fetchFiles(context, session, { model, wanted, folder: partial });
  if (isMerged) await merge(context, model, partial);
  await putInPlace(partial, folder);
  const bytes = wanted.reduce((sum, file) => sum + file.size_bytes, 0);
  return {
    kind: "operation",
    operation: "model.download",
    status: "success",
    message: `Downloaded ${model.model_name}${isMerged ? `, merged with ${model.base_model},` : ""} to ${folder} (${formatBytes(bytes)}, SHA-256 checked).`,
    fields: hasWeights
      ? usage(model, folder, isMerged)
      : [["Weights", "are at the trainer; the folder holds the reference to them"]],
    resource: {
      name: model.model_name,
      output_path: folder,
      method: isMerged ? "full" : model.method,
      base_model: model.base_model,
      bytes_downloaded: bytes,
      files: isMerged
        ? await filesIn(folder)
        : wanted.map(({ name: file, size_bytes, sha256 }) => ({ name: file, size_bytes, sha256 })),
    },
    nextSteps: nextSteps(model, folder, { isMerged, isServable: hasWeights && !isOnlyAdapter(model) }),
    extras: workspaceExtras(session.workspace),
  };
}

/** Whether the base beneath an adapter is tokenizer and chat template alone. */
function isOnlyAdapter({ method, files, base_files: base }: Model): boolean {
  return method === "lora" && holdWeights(files) && !holdWeights(base);
}

type Wanted = Model["files"][number];

const inside =
  (folder: string) =>
  (file: Wanted): Wanted => ({ ...file, name: `${folder}/${file.name}` });

async function getModel({ client }: WorkspaceSession, name: string): Promise<Model> {
  const model = await client.call(modelRoutes.get, { params: { name } });
  if (model.files_removed_at !== null) throw removed(model.model_name, model.training_run_name);
  // Names become paths.
  const odd = [...model.base_files, ...model.files].find(
    (file) => basename(file.name) !== file.name || file.name.startsWith("."),
  );
  if (odd !== undefined) {
    throw new OsmosisError("PLATFORM_ERROR", `The platform names a file ${JSON.stringify(odd.name)}.`, {
      hint: "That is no file of a model; nothing was written.",
    });
  }
  return model;
}

function removed(model: string, run: string): OsmosisError {
  return new OsmosisError("NOT_FOUND", `The files of ${model} were removed, as keep_checkpoints asks for.`, {
    hint: `\`osmosis train info ${run}\` shows the checkpoints that are kept.`,
  });
}

async function fetchFiles(
  context: Context,
  session: WorkspaceSession,
  { model, wanted, folder }: { model: Model; wanted: readonly Wanted[]; folder: string },
): Promise<void> {
  await makeFolder(folder);
  const progress = context.progress();
  const total = wanted.reduce((sum, file) => sum + file.size_bytes, 0);
  let before = 0;
  // A link lives for a quarter of an hour, a download may take longer.
  let isFirst = true;
  try {
    for (const file of wanted) {
      const locate = async (): Promise<URL> => {
        const fresh = isFirst ? model : await getModel(session, model.model_name);
        isFirst = false;
        const found = [...fresh.files, ...fresh.base_files].find((one) => one.sha256 === file.sha256);
        if (found === undefined) throw removed(model.model_name, model.training_run_name);
        return new URL(found.presigned_url, session.client.baseUrl);
      };
      await downloadFile(
        { locate, name: file.name, sha256: file.sha256, sizeBytes: file.size_bytes, refusal },
        join(folder, file.name),
        {
          fetch: context.io.fetch,
          signal: context.io.interrupted,
          token: undefined,
          onProgress: (done) =>
            progress.update({
              label: `Downloading ${file.name}`,
              percent: Math.floor((100 * (before + done)) / total),
              text: `${formatBytes(before + done)} of ${formatBytes(total)}`,
            }),
        },
      );
      before += file.size_bytes;
    }
  } finally {
    progress.stop();
  }
  await keepOnly(
    folder,
    wanted.map((file) => file.name),
  );
}

/** Deletes what an earlier download of another checkpoint left. */
async function keepOnly(folder: string, names: readonly string[]): Promise<void> {
  const wanted = new Set(names.map((name) => join(folder, name)));
  // Folders after what they held: those of a merge that was interrupted are empty then.
  for (const entry of (await readdir(folder, { recursive: true, withFileTypes: true })).reverse()) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isDirectory()) await rmdir(path).catch(() => {});
    else if (!wanted.has(path)) await rm(path, { force: true });
  }
}

/** Makes one model of `base/` and `adapter/` in the folder, in their place. */
async function merge(context: Context, model: Model, folder: string): Promise<void> {
  context.note(`Merging the adapter into ${model.base_model} …`);
  const { mergeAdapterFolder } = await import("@osmosis/controller/model");
  const merged = join(folder, "merged");
  await rm(merged, { recursive: true, force: true });
  await mergeAdapterFolder({ folder: join(folder, "base"), adapter: join(folder, "adapter") }, merged);
  for (const name of await readdir(merged)) await rename(join(merged, name), join(folder, name));
  for (const name of ["base", "adapter", "merged"])
    await rm(join(folder, name), { recursive: true, force: true });
}

async function filesIn(folder: string): Promise<Omit<Wanted, "presigned_url">[]> {
  return await Promise.all(
    (await readdir(folder)).toSorted().map(async (name) => {
      const path = join(folder, name);
      return { name, size_bytes: (await stat(path)).size, sha256: await sha256Of(path) };
    }),
  );
}

function refusal(status: number, name: string): OsmosisError {
  if (status === 404) {
    return new OsmosisError("NOT_FOUND", `The platform does not have ${name} any more.`, {
      hint: "The checkpoint may have just been removed: `osmosis model list --type lora` shows those that there are.",
    });
  }
  // A link that has expired is refused, too; the next attempt asks for another one.
  return new OsmosisError("PLATFORM_ERROR", `The platform answered ${status} for ${name}.`, {
    hint: "Run the command again: it goes on where it stopped.",
  });
}

/** What a model's folder holds; a folder with anything else in it is not replaced. */
const MODEL_FILE = /\.(json|safetensors|jinja|txt|model)$/;

async function refuseOccupied(
  folder: string,
  { cwd, overwrite }: { readonly cwd: string; readonly overwrite: boolean },
): Promise<void> {
  const found = await stat(folder).catch(() => undefined);
  if (found === undefined) return;
  if (await isAround(cwd, folder)) {
    throw new OsmosisError("CONFLICT", `You are inside of ${folder}, which the model would replace.`, {
      hint: "Name a new folder with -o, such as ./model.",
    });
  }
  if (!found.isDirectory()) {
    throw new OsmosisError("CONFLICT", `${folder} is a file, not a folder.`, {
      hint: "Name another folder with -o.",
    });
  }
  const names = await readdir(folder);
  if (names.length === 0) return;
  if (!overwrite) {
    throw new OsmosisError("CONFLICT", `${folder} exists.`, {
      hint: "Add --overwrite to replace it, or name another folder with -o.",
    });
  }
  if (names.every((name) => MODEL_FILE.test(name))) return;
  throw new OsmosisError("CONFLICT", `${folder} holds more than a model; it is not replaced.`, {
    hint: "Name another folder with -o.",
  });
}

/** Whether the folder is the other one, or one around it. */
async function isAround(inner: string, folder: string): Promise<boolean> {
  const way = relative(await realpath(folder), await realpath(inner));
  return way !== ".." && !way.startsWith("../") && !isAbsolute(way);
}

async function putInPlace(partial: string, folder: string): Promise<void> {
  await makeFolder(dirname(folder));
  const former = `${folder}.replaced`;
  await rm(former, { recursive: true, force: true });
  const isEmpty = await rmdir(folder).then(
    () => true,
    () => false,
  );
  if (!isEmpty) await rename(folder, former).catch(() => {});
  await rename(partial, folder);
  await rm(former, { recursive: true, force: true });
}

function usage(model: Model, folder: string, isMerged: boolean): Field[] {
  if (isMerged || model.method === "full")
    return [["Model", "a whole model, in the layout of Hugging Face tools"]];
  return [
    ["Adapter of", model.base_model],
    [
      "With PEFT",
      `PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), ${JSON.stringify(folder)})\n` +
        "BASE is the folder or hub id of the base model.",
    ],
  ];
}

function nextSteps(
  { model_name: name, method }: Model,
  folder: string,
  { isMerged, isServable }: { readonly isMerged: boolean; readonly isServable: boolean },
): NextStep[] {
  if (!isServable) {
    return [
      {
        command: `osmosis eval submit configs/eval/CONFIG.toml --model ${name}`,
        description: "measure it, at its trainer",
      },
    ];
  }
  if (!isMerged && method === "lora") {
    return [
      {
        command: `osmosis model download ${name} --merge -o ${shellWord(`${folder}-merged`)}`,
        description: "adapter and base as one model, to be served",
      },
    ];
  }
  return [
    {
      command: `transformers serve ${shellWord(folder)}`,
      description: "answer OpenAI's chat requests with it; the workspace's README.md says how",
    },
  ];
}

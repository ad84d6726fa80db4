import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, extname, join, resolve } from "node:path";
import type { CheckedModel, CheckedWeightless } from "@osmosis/controller/model";
import { errorMessage, ModelName, OsmosisError } from "@osmosis/protocol";
import type { Context } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { formatBytes, formatCount } from "../output/format.ts";
import type { OperationResult } from "../output/result.ts";
import { openSession } from "../platform/session.ts";
import { uploadModel } from "./upload.ts";

export type ImportOptions = {
  readonly name?: string;
  readonly overwrite?: boolean;
  /** Tokenizer and chat template alone: the weights are a trainer's. */
  readonly withoutWeights?: boolean;
};

/** Checks a model folder or a GGUF file here, and registers it as a base model of the platform. */
export async function importModel(
  context: Context,
  source: string,
  options: ImportOptions,
): Promise<OperationResult> {
  const path = resolve(context.io.cwd, source);
  const withoutWeights = options.withoutWeights === true;
  if (withoutWeights && extname(path) === ".gguf") {
    throw new UsageError(
      "A GGUF file is its weights: it cannot be imported without them.",
      "Name the folder of the model, or let `osmosis model pull OWNER/NAME --without-weights` fetch what is needed of it.",
    );
  }
  const name = modelName(options.name ?? `local/${basename(path, extname(path) === ".gguf" ? ".gguf" : "")}`);
  return await registerModel(context, {
    path,
    name,
    operation: "model.import",
    overwrite: options.overwrite === true,
    withoutWeights,
  });
}

/** @throws UsageError when the platform would not take it as the name of a model. */
export function modelName(name: string): string {
  if (ModelName.safeParse(name).success) return name;
  throw new UsageError(
    `"${name}" is not a name for a model.`,
    "Use the form owner/name, as in --name my/model: letters, digits, dots, dashes and underscores.",
  );
}

/** Checks, uploads and registers what lies at `path`. */
export async function registerModel(
  context: Context,
  model: {
    readonly path: string;
    readonly name: string;
    readonly operation: string;
    readonly overwrite: boolean;
    readonly withoutWeights: boolean;
  },
): Promise<OperationResult> {
  const { path, name, operation, overwrite } = model;
  const { client } = await openSession(context);
  const progress = context.progress();
  await using folder = await asFolder(path, () => progress.update({ label: `Reading ${path} …` }));
  try {
    progress.update({ label: `Checking ${path} …` });
    const checked = await checkFolder(folder.path, model.withoutWeights);
    for (const warning of checked.warnings) context.warn("MODEL_LIMITED", warning);
    const uploaded = await uploadModel({
      context,
      client,
      progress,
      name,
      folder: folder.path,
      files: checked.files,
      overwrite,
    });
    return {
      kind: "operation",
      operation,
      status: "success",
      ...("size" in checked ? weightless(name, checked) : whole(name, checked, uploaded.sizeBytes)),
      resource: {
        ...uploaded.model,
        size_bytes: uploaded.sizeBytes,
        sent_bytes: uploaded.sentBytes,
        warnings: checked.warnings,
      },
    };
  } finally {
    progress.stop();
  }
}

/** What a person is told of a registered model. */
type Told = Pick<OperationResult, "message" | "fields" | "nextSteps">;

function whole(name: string, { config, parameters }: CheckedModel, sizeBytes: number): Told {
  return {
    message: `Registered ${name}: ${formatCount(parameters)} parameters, ${config.architecture}, ${formatBytes(sizeBytes)}.`,
    fields: [
      [
        "Layers",
        `${config.layers} × ${config.hiddenSize}, ${config.heads} heads (${config.kvHeads} key-value)`,
      ],
      ["Vocabulary", formatCount(config.vocabSize)],
      ["Context", `${formatCount(config.contextLength)} tokens`],
    ],
    nextSteps: [
      {
        command: `osmosis eval submit configs/eval/CONFIG.toml --model ${name}`,
        description: "measure it",
      },
      { command: `model_path = "${name}"`, description: "in a training configuration, to train it" },
    ],
  };
}

function weightless(name: string, { size }: CheckedWeightless): Told {
  return {
    message:
      `Registered ${name} without weights: vocabulary ${formatCount(size.vocabSize)}, ` +
      `context ${formatCount(size.contextLength)}; it is trained at a trainer by URL only.`,
    nextSteps: [
      {
        command: 'trainer = "https://TRAINER"',
        description:
          "in [advanced] of its configurations, unless the platform has a trainer; trainer_model, where it has another name there",
      },
      {
        command: `osmosis eval submit configs/eval/CONFIG.toml --model ${name}`,
        description: "measure it at the trainer",
      },
      { command: `model_path = "${name}"`, description: "in a training configuration, to train it" },
    ],
  };
}

type Folder = AsyncDisposable & { readonly path: string };

/** The folder itself, or one that a GGUF file was turned into, which is deleted at the end. */
async function asFolder(path: string, onConvert: () => void): Promise<Folder> {
  const found = await stat(path).catch((error: unknown) => {
    throw new OsmosisError("NOT_FOUND", `${path} cannot be read: ${errorMessage(error)}.`, {
      hint: "Check the path.",
      cause: error,
    });
  });
  if (found.isDirectory()) return { path, [Symbol.asyncDispose]: async () => {} };
  if (extname(path) !== ".gguf") {
    throw new OsmosisError("VALIDATION", `${path} is neither a folder nor a .gguf file.`, {
      hint: "A model is a folder with config.json, tokenizer.json, tokenizer_config.json and safetensors, or a GGUF file.",
    });
  }
  onConvert();
  const folder = await mkdtemp(join(tmpdir(), "osmosis-model-"));
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true });
  try {
    const { importGguf } = await import("@osmosis/controller/model");
    await importGguf(path, folder);
  } catch (error) {
    await remove();
    throw error;
  }
  return { path: folder, [Symbol.asyncDispose]: remove };
}

async function checkFolder(
  folder: string,
  withoutWeights: boolean,
): Promise<CheckedModel | CheckedWeightless> {
  const { checkModelFolder, checkWeightlessFolder } = await import("@osmosis/controller/model");
  if (withoutWeights) return await checkWeightlessFolder(folder);
  const names = await readdir(folder);
  const check = () => checkModelFolder(folder);
  return names.some((name) => name.endsWith(".safetensors"))
    ? await check()
    : await offeringWeightless(check);
}

export const WEIGHTLESS_OFFER =
  "For training at a trainer by URL, which has the weights, add --without-weights.";

/** Adds to the refusal of a model that cannot be trained here how it can be elsewhere. */
export async function offeringWeightless<Result>(check: () => Promise<Result>): Promise<Result> {
  try {
    return await check();
  } catch (error) {
    if (!(error instanceof OsmosisError)) throw error;
    throw new OsmosisError(error.code, error.message, {
      hint: error.hint === undefined ? WEIGHTLESS_OFFER : `${error.hint} ${WEIGHTLESS_OFFER}`,
      cause: error,
    });
  }
}

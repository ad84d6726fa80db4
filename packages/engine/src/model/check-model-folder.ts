import { join } from "node:path";
import { errorMessage, OsmosisError, type ChatMessage, type ChatTool } from "@osmosis/protocol";
import { z } from "zod";
import { loadChatCodec, type ChatCodec } from "../chat-codec.ts";
import { readModelSize, type ModelConfig, type ModelSize } from "../model-config.ts";
import { nonFiniteTensors } from "../safetensors.ts";
import { readJson, readText } from "../tokenizer.ts";
import { readModelFolder } from "./model-folder.ts";

type CheckedFolder = {
  /** Names of the files that the model consists of; what else lies in the folder is not needed. */
  readonly files: readonly string[];
  /** What is allowed but will surprise, one sentence each. */
  readonly warnings: readonly string[];
};

export type CheckedModel = CheckedFolder & { readonly config: ModelConfig; readonly parameters: number };

export type CheckedWeightless = CheckedFolder & { readonly size: ModelSize };

/**
 * Checks everything about a Hugging Face model folder that would otherwise fail in the middle of a run: architecture,
 * shards, shapes, numbers, tokenizer and chat template. Takes four bytes of memory per parameter.
 * @throws OsmosisError `NOT_FOUND` or `VALIDATION` naming the file, and the tensor, that is wrong.
 */
export async function checkModelFolder(folder: string): Promise<CheckedModel> {
  const { config, weights } = await readModelFolder(folder);
  const broken = nonFiniteTensors(weights);
  if (broken.length > 0) {
    const names = broken.slice(0, 3).join(", ");
    throw new OsmosisError(
      "VALIDATION",
      `${folder}: ${broken.length} tensors hold NaN or infinity: ${names}${broken.length > 3 ? ", …" : ""}.`,
      { hint: "Download or export the model again." },
    );
  }
  const warnings = await checkTexts(folder, config);
  let parameters = 0;
  for (const { data } of weights.values()) parameters += data.length;
  const files = [...(await smallFilesOf(folder)), ...(await weightFilesOf(folder))];
  return { config, parameters, files, warnings };
}

/**
 * Checks what is needed of a model whose weights only a trainer elsewhere has: its size, tokenizer and chat template.
 * Weights that lie in the folder are not looked at, and the architecture may be any.
 * @throws OsmosisError `NOT_FOUND` or `VALIDATION` naming the file that is wrong.
 */
export async function checkWeightlessFolder(folder: string): Promise<CheckedWeightless> {
  const size = await readModelSize(folder);
  const warnings = await checkTexts(folder, size);
  return { size, files: await smallFilesOf(folder), warnings };
}

/** What turns conversations into tokens. */
async function checkTexts(folder: string, size: ModelSize): Promise<string[]> {
  await checkVocabulary(folder, size);
  return checkTemplate(folder, await loadChatCodec(folder));
}

const TokenizerFile = z.looseObject({
  model: z.looseObject({
    vocab: z.union([z.record(z.string(), z.int()), z.array(z.unknown())]),
  }),
  added_tokens: z.array(z.looseObject({ id: z.int() })).default([]),
});

/** An embedding may have more rows than there are tokens, never fewer. */
async function checkVocabulary(folder: string, { vocabSize }: ModelSize): Promise<void> {
  const path = join(folder, "tokenizer.json");
  const { model, added_tokens } = await readJson(path, TokenizerFile);
  const { vocab } = model;
  let largest = Array.isArray(vocab) ? vocab.length - 1 : -1;
  for (const id of Array.isArray(vocab) ? [] : Object.values(vocab)) largest = Math.max(largest, id);
  for (const { id } of added_tokens) largest = Math.max(largest, id);
  if (largest < vocabSize) return;
  throw new OsmosisError(
    "VALIDATION",
    `${path} has tokens up to id ${largest}, but the embedding of the model has ${vocabSize} rows.`,
    { hint: "tokenizer.json and config.json do not belong together." },
  );
}

const QUESTION: readonly ChatMessage[] = [{ role: "user", content: "What is 2 times 3?" }];

const TOOL: ChatTool = {
  type: "function",
  function: {
    name: "multiply",
    description: "Multiplies two numbers.",
    parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
  },
};

function checkTemplate(folder: string, codec: ChatCodec): string[] {
  const warnings: string[] = [];
  if (codec.renderPrompt(QUESTION).length === 0) {
    throw new OsmosisError("VALIDATION", `${folder}: the chat template makes nothing of a question.`);
  }
  if (codec.stopTokens.length === 0) {
    warnings.push("No token ends an answer: neither the template nor the configuration names one.");
  }
  try {
    const shown = codec.decode(codec.renderPrompt(QUESTION, [TOOL])).includes("multiply");
    if (!shown)
      warnings.push("The chat template does not show tools to the model: agents cannot use any with it.");
  } catch (error) {
    warnings.push(`The chat template refuses tools: ${errorMessage(error)}`);
  }
  return warnings;
}

const SMALL_FILES = [
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "chat_template.jinja",
];

const ShardIndex = z.object({ weight_map: z.record(z.string(), z.string()) });

async function smallFilesOf(folder: string): Promise<string[]> {
  const files: string[] = [];
  for (const name of SMALL_FILES) {
    if ((await readText(join(folder, name))) !== undefined) files.push(name);
  }
  return files;
}

async function weightFilesOf(folder: string): Promise<string[]> {
  const index = "model.safetensors.index.json";
  if ((await readText(join(folder, index))) === undefined) return ["model.safetensors"];
  const { weight_map } = await readJson(join(folder, index), ShardIndex);
  return [index, ...new Set(Object.values(weight_map))];
}

import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { OsmosisError } from "@osmosis/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readSafetensors, writeSafetensors, type Weights } from "../safetensors.ts";
import { checkModelFolder, checkWeightlessFolder } from "./check-model-folder.ts";

const TINY_AGENT = fileURLToPath(new URL("../../models/tiny-agent", import.meta.url));

let folder = "";
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-check-"));
  await cp(TINY_AGENT, folder, { recursive: true });
});
afterEach(() => rm(folder, { recursive: true }));

async function refusal(): Promise<string> {
  const error: unknown = await checkModelFolder(folder).catch((caught: unknown) => caught);
  if (!(error instanceof OsmosisError)) throw new Error("it was not refused");
  return error.message;
}

/** Merges members into a JSON file. */
async function edit(name: string, change: object): Promise<void> {
  const path = join(folder, name);
  const value: unknown = JSON.parse(await readFile(path, "utf8"));
  await writeFile(path, JSON.stringify(Object.assign({}, value, change)));
}

/** Splits the weights in two shards with an index. */
async function writeShards(): Promise<void> {
  const path = join(folder, "model.safetensors");
  const weights = [...(await readSafetensors(path))];
  await rm(path);
  const weight_map: Record<string, string> = {};
  for (const [i, half] of [weights.slice(0, 5), weights.slice(5)].entries()) {
    const name = `model-0000${i + 1}-of-00002.safetensors`;
    const shard: Weights = new Map(half);
    await writeSafetensors(join(folder, name), shard);
    for (const [tensor] of half) weight_map[tensor] = name;
  }
  await writeFile(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map }));
}

test("a sound model is described, without the files that are not part of it", async () => {
  const { config, parameters, files, warnings } = await checkModelFolder(folder);
  expect(config.architecture).toBe("llama");
  expect(parameters).toBeGreaterThan(900_000);
  expect(files).not.toContain("README.md");
  expect(files).toContain("model.safetensors");
  expect(warnings).toEqual([]);
});

test("a model in shards is described with all of them", async () => {
  await writeShards();
  expect((await checkModelFolder(folder)).files).toEqual(
    expect.arrayContaining([
      "model.safetensors.index.json",
      "model-00001-of-00002.safetensors",
      "model-00002-of-00002.safetensors",
    ]),
  );
});

test("a missing shard is named", async () => {
  await writeShards();
  await rm(join(folder, "model-00002-of-00002.safetensors"));
  expect(await refusal()).toContain("model-00002-of-00002.safetensors");
});

test("an unknown architecture is named", async () => {
  await edit("config.json", { model_type: "gemma4" });
  expect(await refusal()).toContain('model_type "gemma4" is not supported');
});

test("weights that are cut off are named with the tensor", async () => {
  const path = join(folder, "model.safetensors");
  await writeFile(path, (await readFile(path)).subarray(0, -100));
  expect(await refusal()).toMatch(/model\.safetensors.*is it cut off\?/);
});

test("weights of another configuration are named with the tensor", async () => {
  await edit("config.json", { num_hidden_layers: 9 });
  expect(await refusal()).toContain("has no tensor model.layers.4.");
  await edit("config.json", { num_hidden_layers: 4, intermediate_size: 12 });
  expect(await refusal()).toContain("the model needs [12, 128]");
});

test("NaN in the weights is named with the tensor", async () => {
  const path = join(folder, "model.safetensors");
  const weights = await readSafetensors(path);
  weights.get("model.norm.weight")?.data.fill(NaN, 3, 4);
  await writeSafetensors(path, weights);
  expect(await refusal()).toContain("1 tensors hold NaN or infinity: model.norm.weight");
});

test("a tokenizer with more tokens than the embedding has rows is refused", async () => {
  await edit("tokenizer.json", { added_tokens: [{ id: 431, content: "<extra>", special: true }] });
  expect(await refusal()).toContain("has tokens up to id 431, but the embedding of the model has 431 rows");
});

test("a chat template that is missing, does not parse or raises is refused in its own words", async () => {
  await edit("tokenizer_config.json", { chat_template: null });
  expect(await refusal()).toContain("has no chat template");
  await edit("tokenizer_config.json", { chat_template: "{% for x in %}" });
  expect(await refusal()).toContain("does not parse");
  await edit("tokenizer_config.json", { chat_template: '{{ raise_exception("Not today.") }}' });
  expect(await refusal()).toContain("Not today.");
});

test("a chat template that never ends is refused, and does not hang the import", async () => {
  const loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
  await edit("tokenizer_config.json", { chat_template: loop });
  expect(await refusal()).toContain("did not end within 5 s");
});

test("infinity in half-precision weights is named with the tensor", async () => {
  const path = join(folder, "model.safetensors");
  const weights = await readSafetensors(path);
  weights.get("model.norm.weight")?.data.fill(-Infinity, 0, 1);
  await writeSafetensors(path, weights, { dtype: "F16" });
  expect(await refusal()).toContain("1 tensors hold NaN or infinity: model.norm.weight");
});

test("an empty folder is refused with the file that it lacks, a link to a model is followed", async () => {
  const root = await mkdtemp(join(tmpdir(), "osmosis-check-"));
  try {
    const link = join(root, "link");
    await symlink(folder, link);
    expect((await checkModelFolder(link)).files).toContain("model.safetensors");
    for (const name of await readdir(folder)) {
      await rename(join(folder, name), join(root, name));
      await symlink(join(root, name), join(folder, name));
    }
    expect((await checkModelFolder(folder)).files).toContain("model.safetensors");
    await rm(join(root, "model.safetensors"));
    expect(await refusal()).toContain("model.safetensors cannot be read");
    await rm(folder, { recursive: true });
    await mkdir(folder);
    expect(await refusal()).toContain("config.json");
  } finally {
    await rm(root, { recursive: true });
  }
});

test("a template that shows no tools is a warning", async () => {
  await edit("tokenizer_config.json", {
    chat_template: "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
  });
  const { warnings } = await checkModelFolder(folder);
  expect(warnings).toEqual([expect.stringContaining("does not show tools")]);
});

test("without weights any architecture will do, and weights that lie in the folder are left alone", async () => {
  await writeFile(join(folder, "model.safetensors"), "no weights");
  await edit("config.json", { model_type: "gpt_oss", hidden_act: "gelu" });
  const { size, files, warnings } = await checkWeightlessFolder(folder);
  expect(size).toEqual({ vocabSize: 431, contextLength: 512 });
  expect(files).toEqual(["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]);
  expect(warnings).toEqual([]);
});

test("without weights tokenizer and chat template are checked all the same", async () => {
  await edit("tokenizer_config.json", { chat_template: null });
  await expect(checkWeightlessFolder(folder)).rejects.toThrow("has no chat template");
  await edit("config.json", { vocab_size: 100 });
  await expect(checkWeightlessFolder(folder)).rejects.toThrow("has tokens up to id 430");
  await rm(join(folder, "tokenizer.json"));
  await expect(checkWeightlessFolder(folder)).rejects.toMatchObject({ code: "NOT_FOUND" });
});

import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parseModelConfig } from "../model-config.ts";
import { initialiseModel } from "../model/parameters.ts";
import { writeSafetensors } from "../safetensors.ts";

const CONFIG = {
  model_type: "llama",
  vocab_size: 300,
  hidden_size: 64,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  intermediate_size: 256,
  tie_word_embeddings: true,
};

/** Starts a step that takes about a second, and leaves in the middle of it. */
const PROGRAM = `
const { createEmbeddedService } = await import(process.argv[1]);
const service = createEmbeddedService({ threads: Number(process.argv[3]) });
const model = await service.createModel({ folder: process.argv[2] }, { method: { type: "full" }, seed: 1 });
const data = Array.from({ length: 400 }, (_, i) => {
  const tokens_T = Array.from({ length: 100 }, (_, t) => (t * (i + 1)) % 300);
  return { tokens_T, weights_T: tokens_T.map(() => 1), advantages_T: tokens_T, samplerLogprobs_T: tokens_T };
});
await model.forwardBackward(data.slice(0, 1), { type: "cross_entropy" });
model.forwardBackward(data, { type: "cross_entropy" }).catch(() => {});
await new Promise((resolve) => setTimeout(resolve, 100));
if (process.argv[4] === "exit") process.exit(0);
await service[Symbol.asyncDispose]();
`;

let folder = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "osmosis-exit-"));
  await writeFile(join(folder, "config.json"), JSON.stringify(CONFIG));
  await writeSafetensors(join(folder, "model.safetensors"), initialiseModel(parseModelConfig(CONFIG), 1));
});

afterAll(() => rm(folder, { recursive: true }));

test.each([
  ["exit", "1"],
  ["exit", "2"],
  ["dispose", "1"],
  ["dispose", "2"],
])("%s in the middle of a step ends the process cleanly, with %s threads", async (how, threads) => {
  const service = new URL("./service.ts", import.meta.url).href;
  // execFile rejects when the process aborts or returns anything but 0.
  const { stderr } = await promisify(execFile)(process.execPath, [
    "--input-type=module",
    "--eval",
    PROGRAM,
    service,
    folder,
    threads,
    how,
  ]);
  expect(stderr).toBe("");
});

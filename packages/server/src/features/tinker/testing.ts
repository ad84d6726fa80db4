import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { initialiseModel, parseModelConfig, writeSafetensors } from "@osmosis/engine";
import { z } from "zod";
import { startTestServer, type TestServer } from "../../testing.ts";

/** A model of random weights whose tokens are the numbers below 23; it has no tokenizer. */
const CONFIG = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 23,
  hidden_size: 16,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  intermediate_size: 24,
  tie_word_embeddings: true,
  max_position_embeddings: 32,
};

/** A server whose only base model is `osmosis/tiny`, and an API key for it. */
export interface TrainerServer extends AsyncDisposable {
  readonly server: TestServer;
  readonly apiKey: string;
  /** The folder of `osmosis/tiny`. */
  readonly folder: string;
}

/** With a data folder and a database that it does not own, it is the same server again. */
export async function startTrainerServer(
  options: Parameters<typeof startTestServer>[0] = {},
): Promise<TrainerServer> {
  await using stack = new AsyncDisposableStack();
  const modelsFolder = await mkdtemp(join(tmpdir(), "osmosis-trainer-"));
  stack.defer(() => rm(modelsFolder, { recursive: true, force: true }));
  const folder = join(modelsFolder, "tiny");
  await mkdir(folder);
  await writeFile(join(folder, "config.json"), JSON.stringify(CONFIG));
  await writeFile(join(folder, "tokenizer.json"), "{}");
  await writeSafetensors(join(folder, "model.safetensors"), initialiseModel(parseModelConfig(CONFIG), 1));
  const server = stack.use(
    await startTestServer({ ...options, config: { ...options.config, modelsFolder } }),
  );
  const apiKey = await mintKey(server);
  const resources = stack.move();
  return { server, apiKey, folder, [Symbol.asyncDispose]: () => resources.disposeAsync() };
}

/** An API key of the owner, or of whom `token` belongs to. */
export async function mintKey(server: TestServer, token?: string): Promise<string> {
  const { body } = await server.json("POST", "/api/tinker-keys", token === undefined ? {} : { token });
  return z.object({ api_key: z.string() }).parse(body).api_key;
}

import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { loadChatCodec } from "../chat-codec.ts";
import { createEmbeddedService } from "../embedded/service.ts";
import type { ModelSource } from "../service.ts";
import { mergeAdapterFolder } from "./merge-folder.ts";

const BASE = join(import.meta.dirname, "../../models/tiny-agent");

let root: string;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "osmosis-merge-"));
});
afterAll(() => rm(root, { recursive: true, force: true }));

test("a merged model answers to the last bit as its base with the adapter, and not as its base", async () => {
  await using service = createEmbeddedService({ threads: 1 });
  const adapter = join(root, "adapter");
  const codec = await loadChatCodec(BASE);
  const prompt_T = codec.encode("<|im_start|>user\nWhat is 3 times 4?<|im_end|>\n<|im_start|>assistant\n");
  {
    await using model = await service.createModel(
      { folder: BASE },
      { method: { type: "lora", rank: 4, alpha: 8 }, seed: 1 },
    );
    const tokens_T = [...prompt_T, ...codec.encode("never seen")];
    const ones_T = tokens_T.map((_token, t) => (t < prompt_T.length ? 0 : 1));
    for (let step = 0; step < 3; step++) {
      const datum = { tokens_T, weights_T: ones_T, advantages_T: ones_T, samplerLogprobs_T: ones_T };
      await model.forwardBackward([datum], { type: "cross_entropy" });
      await model.optimStep({
        learningRate: 0.02,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        weightDecay: 0,
        gradClipNorm: 0,
      });
    }
    await model.saveWeights(adapter);
  }
  const merged = join(root, "merged");
  await mergeAdapterFolder({ folder: BASE, adapter }, merged);
  expect(await readdir(merged)).toEqual(
    expect.arrayContaining(["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]),
  );

  const logprobs = async (source: ModelSource) => {
    await using sampler = await service.openSampler(source);
    const result = await sampler.sample({
      conversation: "one",
      prompt_T,
      maxTokens: 12,
      temperature: 0,
      topP: 1,
      stopTokens: codec.stopTokens,
      seed: 0,
    });
    return { tokens_T: result.tokens_T, logprobs_T: result.logprobs_T };
  };
  const expected = await logprobs({ folder: BASE, adapter });
  expect(await logprobs({ folder: merged })).toEqual(expected);
  expect(await logprobs({ folder: BASE })).not.toEqual(expected);
});

/** What the other tests hold the sampler against must itself be right: `transformers` says what is. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { z } from "zod";
import { readModelConfig } from "../model-config.ts";
import { readSafetensors } from "../safetensors.ts";
import type { SampleResult } from "../service.ts";
import { referenceLogprobs } from "./reference-decoder.ts";
import { openSamplingEngine } from "./sampling-engine.ts";

const FIXTURES = fileURLToPath(new URL("../../fixtures/tiny-random", import.meta.url));

const Expected = z.object({
  sequences: z.array(z.array(z.int())),
  full: z.object({ logprobs: z.array(z.array(z.number())) }),
});

async function readFixture(model: string) {
  const folder = join(FIXTURES, model);
  return {
    config: await readModelConfig(folder),
    weights: await readSafetensors(join(folder, "model.safetensors")),
    expected: Expected.parse(JSON.parse(await readFile(join(folder, "expected.json"), "utf8"))),
  };
}

const models = ["llama", "llama-own-head", "llama-scaled", "qwen2", "qwen3"];

test.each(models)("the reference decoder agrees with transformers on %s", async (model) => {
  const { config, weights, expected } = await readFixture(model);
  for (const [i, tokens_T] of expected.sequences.entries()) {
    const logprobs = referenceLogprobs(config, weights, tokens_T);
    const ofTokens = tokens_T.slice(1).map((token, t) => logprobs[t]?.[token] ?? NaN);
    for (const [t, logprob] of ofTokens.entries()) {
      expect(logprob).toBeCloseTo(expected.full.logprobs[i]?.[t] ?? NaN, 4);
    }
  }
});

test.each(models)("the sampler agrees with transformers on %s", async (model) => {
  const { config, weights, expected } = await readFixture(model);
  const engine = await openSamplingEngine({ config, weights, version: 0 });
  let compared = 0;
  for (const [i, tokens_T] of expected.sequences.entries()) {
    for (let t = 1; t < tokens_T.length; t++) {
      // Draw after every beginning until the token of the fixture comes up.
      const draws = await Promise.all(
        Array.from({ length: 60 }, (_, seed): Promise<SampleResult> => {
          const prompt_T = tokens_T.slice(0, t);
          return engine.sample({
            conversation: `${i}`,
            prompt_T,
            maxTokens: 1,
            temperature: 1,
            topP: 1,
            stopTokens: [],
            seed,
          });
        }),
      );
      const hit = draws.find((draw) => draw.tokens_T[0] === tokens_T[t]);
      if (hit === undefined) continue;
      compared++;
      expect(hit.logprobs_T[0]).toBeCloseTo(expected.full.logprobs[i]?.[t - 1] ?? NaN, 4);
    }
  }
  expect(compared).toBeGreaterThan(5);
  await engine.close();
});

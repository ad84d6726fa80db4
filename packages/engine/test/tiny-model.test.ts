import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ChatMessage } from "@osmosis/protocol";
import { afterAll, describe, expect, test } from "vitest";
import { loadChatCodec } from "../src/chat-codec.ts";
import { createEmbeddedService } from "../src/embedded/service.ts";
import { nonFiniteTensors, readSafetensors } from "../src/safetensors.ts";
import { buildTinyModel } from "../tiny-model/build.ts";
import { traceTokens } from "../tiny-model/corpus.ts";
import { passRate } from "../tiny-model/episode.ts";
import { multiplyRows } from "../tiny-model/multiply-rows.ts";
import { seededRandom } from "../tiny-model/seeded-random.ts";
import { drawTrace, numberTool } from "../tiny-model/traces.ts";
import { DATA_SET_SEED } from "../tiny-model/write-data-set.ts";

const SHIPPED = fileURLToPath(new URL("../models/tiny-agent", import.meta.url));
const ROWS = 100;
const MEBIBYTE = 2 ** 20;

describe("the shipped tiny agent", () => {
  test("has at most 4 million parameters in 16-bit floats, all finite, in less than 10 MB", async () => {
    const path = join(SHIPPED, "model.safetensors");
    const weights = await readSafetensors(path);
    const parameters = [...weights.values()].reduce((sum, { data }) => sum + data.length, 0);
    expect(parameters).toBeLessThan(4_000_000);
    expect((await stat(path)).size).toBeLessThan(parameters * 2 + MEBIBYTE);
    expect((await stat(path)).size).toBeLessThan(10_000_000);
    expect(nonFiniteTensors(weights)).toEqual([]);
  });

  test("solves between a fifth and three fifths of 100 held-out rows greedily", async () => {
    await using service = createEmbeddedService({ threads: 1 });
    await using sampler = await service.openSampler({ folder: SHIPPED });
    const codec = await loadChatCodec(SHIPPED);
    const rows = multiplyRows(DATA_SET_SEED).slice(0, ROWS);
    const measured = await passRate({ sampler, codec }, rows, { temperature: 0, seed: 1 });
    expect(measured.n).toBe(ROWS);
    expect(measured.passRate).toBeGreaterThanOrEqual(0.2);
    expect(measured.passRate).toBeLessThanOrEqual(0.6);
    expect(measured.episodes.some(({ toolCalls, reward }) => toolCalls === 1 && reward === 1)).toBe(true);
  });
});

describe("its tokenizer and chat template", () => {
  test("every digit, minus and point is one token, and any text survives a round trip", async () => {
    const codec = await loadChatCodec(SHIPPED);
    expect(codec.encode("-3.25")).toHaveLength(5);
    const texts = ["Multiply -3.25 by 0.7.", "  tabs\t\n\n and 日本 😀 é", '{"a":-1e5}', "<tool_call>#### 1"];
    expect(texts.map((text) => codec.decode(codec.encode(text)))).toEqual(texts);
  });

  test("a trace's tokens spell the ChatML conversation, and only the assistant's are learned", async () => {
    const codec = await loadChatCodec(SHIPPED);
    const call = { name: "multiply", arguments: '{"a":-3.25,"b":0.7}' };
    const messages: ChatMessage[] = [
      { role: "system", content: "Answer with #### and the number." },
      { role: "user", content: "Multiply -3.25 by 0.7." },
      { role: "assistant", content: null, tool_calls: [{ id: "call_1", type: "function", function: call }] },
      { role: "tool", tool_call_id: "call_1", content: "-2.275" },
      { role: "assistant", content: "#### -2.275" },
    ];
    const { tokens, weights } = traceTokens(codec, { tools: [numberTool("multiply")], messages });
    expect(codec.decode(tokens)).toBe(
      [
        "<|im_start|>system",
        "Answer with #### and the number.",
        '{"name":"multiply","arguments":{"a":number,"b":number}}<|im_end|>',
        "<|im_start|>user",
        "Multiply -3.25 by 0.7.<|im_end|>",
        "<|im_start|>assistant",
        '<tool_call>{"name":"multiply","arguments":{"a":-3.25,"b":0.7}}</tool_call><|im_end|>',
        "<|im_start|>tool",
        "-2.275<|im_end|>",
        "<|im_start|>assistant",
        "#### -2.275<|im_end|>",
      ].join("\n"),
    );
    expect(codec.decode(tokens.filter((_, index) => weights[index] === 1))).toBe(
      '<tool_call>{"name":"multiply","arguments":{"a":-3.25,"b":0.7}}</tool_call><|im_end|>#### -2.275<|im_end|>',
    );
    expect(tokens.length).toBeLessThan(150);
  });

  test("piecewise tokens are those of the whole conversation, so no turn changes an earlier one", async () => {
    const codec = await loadChatCodec(SHIPPED);
    const random = seededRandom(5);
    for (let draw = 0; draw < 300; draw += 1) {
      const { tools, messages } = drawTrace(random);
      const { tokens } = traceTokens(codec, { tools, messages });
      const whole = codec.renderPrompt(messages, [...tools]);
      expect(whole.slice(0, tokens.length)).toEqual(tokens);
      for (let count = 1; count < messages.length; count += 1) {
        const partial = codec.decode(codec.renderPrompt(messages.slice(0, count), [...tools]));
        const withoutPrompt = partial.slice(0, partial.lastIndexOf("<|im_start|>"));
        expect(codec.decode(whole).startsWith(withoutPrompt)).toBe(true);
      }
    }
  });

  test("content parts, a missing system prompt and missing tools are rendered, too", async () => {
    const codec = await loadChatCodec(SHIPPED);
    const rendered = codec.renderPrompt([
      { role: "user", content: [{ type: "text", text: "Add 1 and 2." }] },
    ]);
    expect(codec.decode(rendered)).toBe("<|im_start|>user\nAdd 1 and 2.<|im_end|>\n<|im_start|>assistant\n");
    const withTools = codec.renderPrompt([{ role: "user", content: "Add 1 and 2." }], [numberTool("add")]);
    expect(codec.decode(withTools)).toBe(
      '<|im_start|>system\n\n{"name":"add","arguments":{"a":number,"b":number}}<|im_end|>\n' +
        "<|im_start|>user\nAdd 1 and 2.<|im_end|>\n<|im_start|>assistant\n",
    );
  });
});

describe("building it", () => {
  const folders: string[] = [];
  afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

  test(
    "the same seed gives the same bytes, and a model folder that opens",
    { timeout: 120_000 },
    async () => {
      const [first, second] = [await shortBuild(), await shortBuild()];
      folders.push(first, second);
      const names = [
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
        "README.md",
      ];
      for (const name of names) {
        expect((await readFile(join(first, name))).equals(await readFile(join(second, name)))).toBe(true);
      }
      expect(await readFile(join(first, "README.md"), "utf8")).not.toContain("{{");
      expect(await readFile(join(first, "tokenizer.json"), "utf8")).toBe(
        await readFile(join(SHIPPED, "tokenizer.json"), "utf8"),
      );
    },
  );
});

async function shortBuild(): Promise<string> {
  const out = await mkdtemp(join(tmpdir(), "tiny-model-test-"));
  await buildTinyModel({ out, steps: 2, seed: 1, threads: 1, measureRows: 2, report: () => {} });
  return out;
}

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { OsmosisError } from "@osmosis/protocol";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { loadChatCodec } from "../chat-codec.ts";
import { readModelFolder } from "../model/model-folder.ts";
import { referenceLogprobs } from "../sampler/reference-decoder.ts";
import { importGguf } from "./import-gguf.ts";
import { dequantise, type TensorType } from "./tensor-types.ts";

const FIXTURES = fileURLToPath(new URL("../../fixtures/", import.meta.url));

const Expected = z.object({
  sequences: z.array(z.array(z.int())),
  logprobs: z.record(z.string(), z.array(z.array(z.number()))),
  blocks: z.record(z.string(), z.object({ hex: z.string(), values: z.array(z.number()) })),
});

let root = "";
let expected: z.infer<typeof Expected>;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "osmosis-gguf-"));
  expected = Expected.parse(JSON.parse(await readFile(join(FIXTURES, "gguf/expected.json"), "utf8")));
});
afterAll(() => rm(root, { recursive: true }));

const architectures = ["llama", "llama-scaled", "qwen2", "qwen3"];

test.each(architectures)("a GGUF file of %s gives the log probabilities of transformers", async (name) => {
  const folder = join(root, `exact-${name}`);
  await importGguf(join(FIXTURES, `gguf/${name}.gguf`), folder, { dtype: "F32" });
  const { config, weights } = await readModelFolder(folder);
  for (const [i, tokens_T] of expected.sequences.entries()) {
    const all = referenceLogprobs(config, weights, tokens_T);
    for (const [t, token] of tokens_T.slice(1).entries()) {
      expect(all[t]?.[token]).toBeCloseTo(expected.logprobs[name]?.[i]?.[t] ?? NaN, 4);
    }
  }
});

test("the rotary embedding of Llama 3.1 and later is told by the factors in the file", async () => {
  const folder = join(root, "scaled");
  await importGguf(join(FIXTURES, "gguf/llama-scaled.gguf"), folder);
  const { config } = await readModelFolder(folder);
  expect(config.ropeTheta).toBe(500_000);
  expect(config.ropeScaling).toEqual({ factor: 32, lowTurns: 1, highTurns: 4, originalContext: 8192 });
});

test("quantised weights are stored in half precision, single-precision ones as they are", async () => {
  const dtypes = new Map<string, unknown>();
  for (const name of architectures) {
    const folder = join(root, `default-${name}`);
    await importGguf(join(FIXTURES, `gguf/${name}.gguf`), folder);
    dtypes.set(name, JSON.parse(await readFile(join(folder, "config.json"), "utf8")).dtype);
  }
  expect(Object.fromEntries(dtypes)).toEqual({
    llama: "float16",
    "llama-scaled": "float16",
    qwen2: "float16",
    qwen3: "float32",
  });
});

test("every block format means what GGML says it means", () => {
  for (const [type, { hex, values }] of Object.entries(expected.blocks)) {
    // The types are those of the fixture's script. Adding 0 makes a zero of either sign the same.
    const read = dequantise(type as TensorType, Buffer.from(hex, "hex"));
    expect([...read].map((value) => value + 0)).toEqual(values.map((value) => value + 0));
  }
});

test("the tokenizer and the chat template of the file are those of the model it was made from", async () => {
  const folder = join(root, "tokenizer");
  await importGguf(join(FIXTURES, "gguf/llama.gguf"), folder);
  const imported = await loadChatCodec(folder);
  const original = await loadChatCodec(join(FIXTURES, "chatml"));
  const messages = [{ role: "user", content: "What is -3.25 times 0.7? Größe 東京 🎉\n\n  a\tb " }] as const;
  expect(imported.renderPrompt(messages)).toEqual(original.renderPrompt(messages));
  for (const text of ["", "12345", "<|im_start|>user", "don't  WE'RE", "<tool_call>{}</tool_call>"]) {
    expect(imported.encode(text)).toEqual(original.encode(text));
    expect(imported.decode(imported.encode(text))).toBe(text);
  }
  expect(imported.stopTokens).toContain(402);
});

describe("a broken file", () => {
  let bytes = Buffer.alloc(0);
  beforeAll(async () => {
    bytes = await readFile(join(FIXTURES, "gguf/llama.gguf"));
  });

  async function refusal(content: Buffer): Promise<OsmosisError | undefined> {
    const path = join(root, "broken.gguf");
    await writeFile(path, content);
    const error: unknown = await importGguf(path, join(root, "broken")).catch((caught: unknown) => caught);
    if (error !== undefined) expect(error).toBeInstanceOf(OsmosisError);
    return error instanceof OsmosisError ? error : undefined;
  }

  test("is refused wherever it was cut off, with its name", async () => {
    for (let length = 0; length < bytes.length - 32; length += 997) {
      expect((await refusal(bytes.subarray(0, length)))?.message).toContain("broken.gguf");
    }
    const almost = await refusal(bytes.subarray(0, bytes.length - 40));
    expect(almost?.message).toMatch(/tensor \S+ ends at byte \d+ of \d+: is it cut off\?/);
  });

  test("never does more than be refused, whichever bytes are wrong", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat({ max: 12_000 }), fc.integer({ min: 0, max: 255 })), {
          minLength: 1,
          maxLength: 8,
        }),
        async (changes) => {
          const changed = Buffer.from(bytes);
          for (const [at, value] of changes) changed[at] = value;
          await refusal(changed);
        },
      ),
      { numRuns: 60 },
    );
  });

  /** Changes the 8 bytes after `text` and `skip` further ones. */
  function withNumberAfter(text: string, skip: number, value: bigint): Buffer {
    const changed = Buffer.from(bytes);
    const at = changed.indexOf(text) + text.length + skip;
    changed.writeBigUInt64LE(value, at);
    return changed;
  }

  test("with another magic number, version or byte order is named as such", async () => {
    const other = Buffer.from(bytes);
    other.write("GGML", 0);
    expect((await refusal(other))?.message).toContain('does not begin with "GGUF"');
    const old = Buffer.from(bytes);
    old.writeUInt32LE(1, 4);
    expect((await refusal(old))?.message).toContain("version 1");
    old.writeUInt32BE(3, 4);
    expect((await refusal(old))?.message).toContain("big-endian");
  });

  test("that claims more than it holds is refused before memory is taken", async () => {
    const counts = Buffer.from(bytes);
    counts.writeBigUInt64LE(2n ** 60n, 8);
    expect((await refusal(counts))?.message).toContain("the number of tensors");
    const tokens = withNumberAfter("tokenizer.ggml.tokens", 8, 2n ** 40n);
    expect((await refusal(tokens))?.message).toContain("the length of tokenizer.ggml.tokens");
    const shape = withNumberAfter("token_embd.weight", 4, 2n ** 50n);
    expect((await refusal(shape))?.message).toContain("tensor token_embd.weight");
  });

  test("whose tensors overlap, or are of a type that is not read, names the tensor", async () => {
    // Name, number of dimensions, two sizes and the type come before the offset.
    const overlap = withNumberAfter("blk.0.attn_q.weight", 4 + 16 + 4, 0n);
    expect((await refusal(overlap))?.message).toMatch(/tensor \S+ overlaps tensor \S+/);
    const type = Buffer.from(bytes);
    type.writeUInt32LE(14, type.indexOf("blk.0.attn_q.weight") + "blk.0.attn_q.weight".length + 4 + 16);
    const message = (await refusal(type))?.message;
    expect(message).toContain("tensor blk.0.attn_q.weight is Q6_K; F32, F16, Q4_0, Q4_1, Q8_0 are supported");
    type.writeUInt32LE(99, type.indexOf("blk.0.attn_q.weight") + "blk.0.attn_q.weight".length + 4 + 16);
    expect((await refusal(type))?.message).toContain("tensor blk.0.attn_q.weight is GGML type 99");
  });

  test("with two tensors or two values of one name names them", async () => {
    const tensor = Buffer.from(bytes);
    tensor.write("blk.0.attn_q.weight", tensor.indexOf("blk.1.attn_q.weight"));
    expect((await refusal(tensor))?.message).toContain("tensor blk.0.attn_q.weight occurs twice");
    const value = Buffer.from(bytes);
    value.write("tokenizer.ggml.bos_token_id", value.indexOf("tokenizer.ggml.eos_token_id"));
    expect((await refusal(value))?.message).toContain(
      "metadata value tokenizer.ggml.bos_token_id occurs twice",
    );
  });

  test("with NaN in its weights names the tensor", async () => {
    const nan = Buffer.from(bytes);
    nan.writeUInt32LE(0x7fc00000, nan.length - 32 * 4);
    expect((await refusal(nan))?.message).toMatch(/tensor \S+ holds NaN/);
  });

  test("of an architecture that is not built names it", async () => {
    const other = Buffer.from(bytes);
    other.write("gemm4", other.indexOf("general.architecture") + "general.architecture".length + 4 + 8);
    expect((await refusal(other))?.message).toContain('architecture "gemm4" is not supported');
  });

  test("that splits text in an unknown way is refused rather than tokenised wrongly", async () => {
    const other = Buffer.from(bytes);
    other.write("abcd5", other.indexOf("tokenizer.ggml.pre") + "tokenizer.ggml.pre".length + 4 + 8);
    expect((await refusal(other))?.message).toContain('splits text as "abcd5"');
  });
});

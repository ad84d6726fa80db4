import { OsmosisError } from "@osmosis/protocol";
import type { GgufHeader } from "./header.ts";
import { metadataReader, type MetadataReader } from "./metadata.ts";

/** The tokenizer of a GGUF file as the JSON files of a Hugging Face model folder. */
export type TokenizerFiles = {
  readonly tokenizer: Record<string, unknown>;
  readonly tokenizerConfig: Record<string, unknown>;
  readonly generationConfig: Record<string, unknown>;
};

/**
 * Builds `tokenizer.json`, `tokenizer_config.json` (with the chat template) and `generation_config.json`.
 * @throws OsmosisError `VALIDATION` for a tokenizer other than byte-level BPE with a known way of splitting text.
 */
export function tokenizerFilesOf(path: string, { metadata }: GgufHeader): TokenizerFiles {
  const read = metadataReader(path, metadata);
  const model = read.text("tokenizer.ggml.model");
  if (model !== "gpt2") {
    throw new OsmosisError(
      "VALIDATION",
      `${path}: its tokenizer is of kind "${model}"; byte-level BPE ("gpt2") is read.`,
      {
        hint: "Import the model's Hugging Face folder instead, which has a tokenizer.json.",
      },
    );
  }
  const splitting = splittingOf(path, read.optionalText("tokenizer.ggml.pre"));
  const tokens = read.texts("tokenizer.ggml.tokens");
  const types = metadata.has("tokenizer.ggml.token_type") ? read.numbers("tokenizer.ggml.token_type") : [];
  const vocab = vocabularyOf(path, tokens, types);
  const merges = mergesOf(path, read.texts("tokenizer.ggml.merges"), vocab);
  const added = tokens.flatMap((content, id) => {
    const isControl = types[id] === CONTROL;
    if (!isControl && types[id] !== USER_DEFINED) return [];
    return [
      {
        id,
        content,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: isControl,
      },
    ];
  });
  const byteLevel = {
    type: "ByteLevel",
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: splitting.gpt2,
  };
  return {
    tokenizer: {
      version: "1.0",
      truncation: null,
      padding: null,
      added_tokens: added,
      normalizer: splitting.normalizer,
      pre_tokenizer: { type: "Sequence", pretokenizers: [...splitting.first, byteLevel] },
      post_processor: null,
      decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
      model: {
        type: "BPE",
        dropout: null,
        unk_token: null,
        continuing_subword_prefix: null,
        end_of_word_suffix: null,
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: splitting.ignoreMerges,
        vocab: Object.fromEntries(vocab),
        merges,
      },
    },
    tokenizerConfig: {
      tokenizer_class: "PreTrainedTokenizerFast",
      ...specialTokens(path, read, tokens),
      add_bos_token: read.optionalFlag("tokenizer.ggml.add_bos_token") ?? false,
      clean_up_tokenization_spaces: false,
      chat_template: chatTemplateOf(read, metadata),
    },
    generationConfig: { eos_token_id: endTokens(read) },
  };
}

/** GGUF's numbers for kinds of tokens. */
const CONTROL = 3;
const USER_DEFINED = 4;
/** Fills the vocabulary up to the rows of the embedding; stands for no text. */
const UNUSED = 5;

type Splitting = {
  readonly normalizer: { readonly type: "NFC" } | null;
  /** What splits text before the bytes are mapped. */
  readonly first: readonly Record<string, unknown>[];
  /** GPT-2's own expression splits (further). */
  readonly gpt2: boolean;
  /** Words of the vocabulary are one token even where no merges lead there. */
  readonly ignoreMerges: boolean;
};

const GPT2: Splitting = { normalizer: null, first: [], gpt2: true, ignoreMerges: false };
const DIGITS: Splitting = { ...GPT2, first: [{ type: "Digits", individual_digits: true }] };
const QWEN2: Splitting = {
  normalizer: { type: "NFC" },
  first: [splitAt(1)],
  gpt2: false,
  ignoreMerges: false,
};
const LLAMA3: Splitting = { normalizer: null, first: [splitAt(3)], gpt2: false, ignoreMerges: true };

const SPLITTINGS: Readonly<Record<string, Splitting>> = {
  "gpt-2": GPT2,
  smollm: DIGITS,
  starcoder: DIGITS,
  refact: DIGITS,
  "command-r": DIGITS,
  qwen2: QWEN2,
  "deepseek-r1-qwen": QWEN2,
  "llama-bpe": LLAMA3,
  "llama-v3": LLAMA3,
  llama3: LLAMA3,
};

/** The expression of Llama 3 and Qwen 2, which differ in how many digits make a word. */
function splitAt(digits: number): Record<string, unknown> {
  const number = digits === 1 ? "\\p{N}" : `\\p{N}{1,${digits}}`;
  const regex = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${number}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
  return { type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false };
}

function splittingOf(path: string, name: string | undefined): Splitting {
  const splitting = name !== undefined && Object.hasOwn(SPLITTINGS, name) ? SPLITTINGS[name] : undefined;
  if (splitting !== undefined) return splitting;
  throw new OsmosisError(
    "VALIDATION",
    `${path}: ${name === undefined ? "it does not say how its tokenizer splits text" : `its tokenizer splits text as "${name}"`} (tokenizer.ggml.pre); ${Object.keys(SPLITTINGS).join(", ")} are known.`,
    { hint: "Import the model's Hugging Face folder instead, which has a tokenizer.json." },
  );
}

function vocabularyOf(
  path: string,
  tokens: readonly string[],
  types: readonly number[],
): Map<string, number> {
  const vocab = new Map<string, number>();
  for (const [id, token] of tokens.entries()) {
    if (types[id] === UNUSED) continue;
    const first = vocab.get(token);
    if (first !== undefined) {
      throw new OsmosisError(
        "VALIDATION",
        `${path}: tokens ${first} and ${id} are both ${JSON.stringify(token)}.`,
      );
    }
    vocab.set(token, id);
  }
  return vocab;
}

function mergesOf(
  path: string,
  merges: readonly string[],
  vocab: ReadonlyMap<string, number>,
): [string, string][] {
  return merges.map((merge, index) => {
    // A space inside a token is written as another letter, so the one space separates the two.
    const space = merge.indexOf(" ", 1);
    const left = merge.slice(0, space);
    const right = merge.slice(space + 1);
    if (space < 0 || !vocab.has(left) || !vocab.has(right) || !vocab.has(left + right)) {
      throw new OsmosisError(
        "VALIDATION",
        `${path}: merge ${index}, ${JSON.stringify(merge)}, does not join two tokens of the vocabulary to a third.`,
      );
    }
    return [left, right];
  });
}

function specialTokens(
  path: string,
  read: MetadataReader,
  tokens: readonly string[],
): Record<string, string> {
  const named: Record<string, string> = {};
  for (const [name, key] of [
    ["bos_token", "bos"],
    ["eos_token", "eos"],
    ["unk_token", "unknown"],
    ["pad_token", "padding"],
  ] as const) {
    const id = read.optionalNumber(`tokenizer.ggml.${key}_token_id`);
    if (id === undefined) continue;
    const token = tokens[id];
    if (token === undefined) {
      throw new OsmosisError("VALIDATION", `${path}: ${name} is token ${id} of ${tokens.length}.`);
    }
    named[name] = token;
  }
  return named;
}

function endTokens(read: MetadataReader): number[] {
  const ids = ["eos", "eot", "eom"].map((name) => read.optionalNumber(`tokenizer.ggml.${name}_token_id`));
  return [...new Set(ids.filter((id) => id !== undefined))];
}

function chatTemplateOf(read: MetadataReader, metadata: GgufHeader["metadata"]): unknown {
  const plain = read.optionalText("tokenizer.chat_template");
  const prefix = "tokenizer.chat_template.";
  const named = [...metadata.keys()]
    .filter((key) => key.startsWith(prefix))
    .map((key) => ({ name: key.slice(prefix.length), template: read.text(key) }));
  if (plain === undefined || named.length === 0) return plain;
  return [{ name: "default", template: plain }, ...named];
}

/**
 * Trains a byte-level BPE tokenizer and writes it in the form of a Hugging Face `tokenizer.json`.
 *
 * Digits, `-` and `.` are split off before any merge, so each is always one token: a number has one spelling in tokens,
 * which is what copying it from a question into a tool call needs.
 */

/** The tokens that no text can produce by accident; their ids are 0 to 4. */
export const SPECIAL_TOKENS = {
  endOfText: "<|endoftext|>",
  start: "<|im_start|>",
  end: "<|im_end|>",
  callStart: "<tool_call>",
  callEnd: "</tool_call>",
} as const;

/** Single digits, signs and points; words with their space; line ends; runs of other punctuation; spaces. */
const SPLIT = String.raw`\p{N}|[-.]| ?\p{L}+|\n|[^\s\p{L}\p{N}.-]+|[^\S\n]`;

/** What `tokenizer.json` holds, as far as this file writes it. */
export type TokenizerJson = Readonly<Record<string, unknown>> & {
  readonly model: Readonly<Record<string, unknown>> & { readonly vocab: Readonly<Record<string, number>> };
};

/**
 * Merges the most frequent neighbours until the vocabulary has `vocabSize` entries or no pair occurs twice; ties go to
 * the pair that sorts first, so the same texts give the same tokenizer.
 */
export function trainTokenizer(texts: Iterable<string>, vocabSize: number): TokenizerJson {
  const bytes = byteAlphabet();
  const counts = countWords(texts, bytes);
  const vocabulary = new Map<string, number>();
  for (const token of Object.values(SPECIAL_TOKENS)) vocabulary.set(token, vocabulary.size);
  for (const symbol of bytes) vocabulary.set(symbol, vocabulary.size);

  const words = [...counts].map(([word, count]) => ({ symbols: Array.from(word), count }));
  const merges: [string, string][] = [];
  while (vocabulary.size < vocabSize) {
    const best = mostFrequentPair(words);
    if (best === undefined) break;
    const [left, right] = best;
    merges.push([left, right]);
    vocabulary.set(left + right, vocabulary.size);
    for (const word of words) word.symbols = mergePair(word.symbols, left, right);
  }
  return tokenizerJson(vocabulary, merges);
}

type Word = { symbols: string[]; readonly count: number };

/** One printable character per byte: the byte's own where it has one, the next unused ones from U+0100 where not. */
function byteAlphabet(): string[] {
  let spare = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
    return String.fromCodePoint(printable ? byte : 256 + spare++);
  });
}

function countWords(texts: Iterable<string>, bytes: readonly string[]): Map<string, number> {
  const pieces = new RegExp(SPLIT, "gu");
  const specials = new RegExp(Object.values(SPECIAL_TOKENS).map(escaped).join("|"), "g");
  const counts = new Map<string, number>();
  for (const text of texts) {
    for (const part of text.split(specials)) {
      for (const [piece] of part.matchAll(pieces)) {
        const word = [...Buffer.from(piece)].map((byte) => bytes[byte]).join("");
        counts.set(word, (counts.get(word) ?? 0) + 1);
      }
    }
  }
  return counts;
}

function mostFrequentPair(words: readonly Word[]): readonly [string, string] | undefined {
  const counts = new Map<string, number>();
  for (const { symbols, count } of words) {
    symbols.slice(1).forEach((right, index) => {
      const pair = `${symbols[index]} ${right}`;
      counts.set(pair, (counts.get(pair) ?? 0) + count);
    });
  }
  const [best] = [...counts].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1));
  if (best === undefined || best[1] < 2) return undefined;
  const [left = "", right = ""] = best[0].split(" ");
  return [left, right];
}

function mergePair(symbols: readonly string[], left: string, right: string): string[] {
  const merged: string[] = [];
  for (const symbol of symbols) {
    if (symbol === right && merged.at(-1) === left) merged[merged.length - 1] = left + right;
    else merged.push(symbol);
  }
  return merged;
}

function tokenizerJson(
  vocabulary: ReadonlyMap<string, number>,
  merges: readonly [string, string][],
): TokenizerJson {
  const { callStart, callEnd } = SPECIAL_TOKENS;
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: Object.values(SPECIAL_TOKENS).map((content, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      // Decoders that skip special tokens must still show a tool call.
      special: content !== callStart && content !== callEnd,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: SPLIT }, behavior: "Isolated", invert: false },
        { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
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
      ignore_merges: false,
      vocab: Object.fromEntries(vocabulary),
      merges,
    },
  };
}

function escaped(text: string): string {
  return text.replaceAll(/[|<>/]/g, String.raw`\$&`);
}

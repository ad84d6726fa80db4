import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Tokenizer } from "@huggingface/tokenizers";
import { errorMessage, OsmosisError } from "@osmosis/protocol";
import { z } from "zod";

/** Text to token ids and back, as `tokenizer.json` of a model folder says. */
export type TextTokenizer = {
  /** Special tokens that the text spells out become their ids; none are added around it. */
  encode(text: string): number[];
  /**
   * The text of any ids: bytes that are no valid UTF-8 become U+FFFD, ids without a token become nothing, and special
   * tokens are spelled out.
   */
  decode(tokens_T: readonly number[]): string;
  /** The id of one whole token, undefined when the vocabulary lacks it. */
  tokenId(text: string): number | undefined;
  /** The text of a token that was added to the vocabulary (special tokens are), undefined for ordinary ones. */
  addedToken(id: number): { readonly text: string; readonly special: boolean } | undefined;
};

/** A special token is named by its text, or by an object that holds it. */
const SpecialToken = z
  .union([z.string(), z.object({ content: z.string() }).transform((token) => token.content)])
  .nullish();

/** The part of `tokenizer_config.json` that the engine reads. */
export const TokenizerConfig = z.looseObject({
  bos_token: SpecialToken,
  eos_token: SpecialToken,
  pad_token: SpecialToken,
  unk_token: SpecialToken,
  chat_template: z
    .union([z.string(), z.array(z.object({ name: z.string(), template: z.string() }))])
    .nullish(),
});
export type TokenizerConfig = z.infer<typeof TokenizerConfig>;

/**
 * Loads `tokenizer.json`.
 * @throws OsmosisError `NOT_FOUND` without the file, `VALIDATION` for one that the tokenizer library does not accept.
 */
export async function loadTokenizer(folder: string, config: TokenizerConfig): Promise<TextTokenizer> {
  const path = join(folder, "tokenizer.json");
  const file = await readJson(path, z.looseObject({}));
  let tokenizer: Tokenizer;
  try {
    tokenizer = new Tokenizer(file, config);
  } catch (error) {
    throw new OsmosisError("VALIDATION", `${path} cannot be used: ${errorMessage(error)}.`, { cause: error });
  }
  const added = tokenizer.get_added_tokens_decoder();
  return {
    encode: (text) => (text === "" ? [] : tokenizer.encode(text, { add_special_tokens: false }).ids),
    decode: (tokens_T) => {
      const known_T = tokens_T.filter((id) => tokenizer.id_to_token(id) !== undefined);
      if (known_T.length === 0) return "";
      return tokenizer.decode(known_T, { skip_special_tokens: false, clean_up_tokenization_spaces: false });
    },
    tokenId: (text) => tokenizer.token_to_id(text),
    addedToken: (id) => {
      const token = added.get(id);
      return token === undefined ? undefined : { text: token.content, special: token.special };
    },
  };
}

/**
 * Reads a JSON file through a schema.
 * @throws OsmosisError `NOT_FOUND` for a missing file, `VALIDATION` for one that breaks the schema.
 */
export async function readJson<T>(path: string, schema: z.ZodType<T>): Promise<T> {
  const text = await readText(path);
  if (text === undefined) {
    throw new OsmosisError("NOT_FOUND", `${path} does not exist.`, {
      hint: "A model is a folder with config.json, tokenizer.json, tokenizer_config.json and safetensors.",
    });
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new OsmosisError("VALIDATION", `${path} is not JSON: ${errorMessage(error)}.`);
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw new OsmosisError("VALIDATION", `${path}: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

/** The text of a file, undefined when there is none. */
export async function readText(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

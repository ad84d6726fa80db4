import { join } from "node:path";
import { z } from "zod";
import { readJson } from "./tokenizer.ts";

/** What of `tokenizer.json` says which text an id stands for. */
const TokenIds = z.object({
  model: z.object({
    vocab: z.union([z.record(z.string(), z.int()), z.array(z.tuple([z.string(), z.number()]))]),
  }),
  added_tokens: z.array(z.object({ id: z.int(), content: z.string() })).default([]),
});

/**
 * Why another model cannot be asked about the token ids of a model: the first id that means something else there.
 * Undefined when every id of the model means the same in both; the other may have more.
 *
 * @throws OsmosisError `NOT_FOUND` for a folder without `tokenizer.json`, `VALIDATION` for one that cannot be read.
 */
export async function tokenIdMismatch(folder: string, other: string): Promise<string | undefined> {
  const [own, others] = await Promise.all([textsById(folder), textsById(other)]);
  for (const [id, text] of own) {
    const found = others.get(id);
    if (found === text) continue;
    const there = found === undefined ? "nothing" : JSON.stringify(found);
    return `token ${id} is ${JSON.stringify(text)} in the one and ${there} in the other`;
  }
  return undefined;
}

async function textsById(folder: string): Promise<Map<number, string>> {
  const { model, added_tokens } = await readJson(join(folder, "tokenizer.json"), TokenIds);
  const { vocab } = model;
  const texts = new Map<number, string>(
    Array.isArray(vocab)
      ? vocab.map(([text], id) => [id, text])
      : Object.entries(vocab).map(([text, id]) => [id, text]),
  );
  for (const { id, content } of added_tokens) texts.set(id, content);
  return texts;
}

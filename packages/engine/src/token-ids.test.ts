import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { tokenIdMismatch } from "./token-ids.ts";

const chatml = fileURLToPath(new URL("../fixtures/chatml", import.meta.url));
let root = "";

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "osmosis-token-ids-"));
});
afterAll(() => rm(root, { recursive: true }));

async function folderOf(name: string, tokenizer: object): Promise<string> {
  const folder = join(root, name);
  await mkdir(folder);
  await writeFile(join(folder, "tokenizer.json"), JSON.stringify(tokenizer));
  return folder;
}

test("a real tokenizer agrees with itself written differently, and with one that has more tokens", async () => {
  const real: unknown = JSON.parse(await readFile(join(chatml, "tokenizer.json"), "utf8"));
  const { added_tokens: added, ...rest } = real as { added_tokens: { id: number; content: string }[] };
  const more = [...added, { id: 90_000, content: "<extra>" }];
  const other = await folderOf("more", { ...rest, added_tokens: more });
  expect(await tokenIdMismatch(chatml, chatml)).toBeUndefined();
  expect(await tokenIdMismatch(chatml, other)).toBeUndefined();
  expect(await tokenIdMismatch(other, chatml)).toBe(
    'token 90000 is "<extra>" in the one and nothing in the other',
  );
});

test("an id that means something else is named, in vocabularies that are lists, too", async () => {
  const one = await folderOf("one", { model: { vocab: { a: 0, b: 1 } } });
  const two = await folderOf("two", {
    model: {
      vocab: [
        ["a", -1.5],
        ["c", -2],
      ],
    },
  });
  expect(await tokenIdMismatch(one, two)).toBe('token 1 is "b" in the one and "c" in the other');
});

test("a folder without a tokenizer is an expected failure", async () => {
  await expect(tokenIdMismatch(chatml, join(root, "nowhere"))).rejects.toMatchObject({ code: "NOT_FOUND" });
});

import { readFile } from "node:fs/promises";
import { chatText } from "@osmosis/protocol";
import { describe, expect, test } from "vitest";
import { decimalText, isHeldOut, multiply } from "../tiny-model/decimal.ts";
import type { Decimal } from "../tiny-model/decimal.ts";
import { HELD_OUT_ROWS, multiplyRows } from "../tiny-model/multiply-rows.ts";
import { CORPUS_PHRASINGS, HELD_OUT_PHRASINGS, UNSEEN_PHRASINGS } from "../tiny-model/phrasings.ts";
import { seededRandom } from "../tiny-model/seeded-random.ts";
import { drawTrace } from "../tiny-model/traces.ts";
import { DATA_SET_SEED } from "../tiny-model/write-data-set.ts";

const NUMBER = /-?\d+(?:\.\d+)?/g;

describe("the multiply data set", () => {
  const rows = multiplyRows(DATA_SET_SEED);
  test("the shipped file is what the generator writes", async () => {
    const path = new URL("../../../templates/workspace/data/multiply.jsonl", import.meta.url);
    const shipped = (await readFile(path, "utf8")).trimEnd().split("\n");
    expect(shipped).toEqual(rows.map((row) => JSON.stringify(row)));
  });

  test("every label is the exact product, in the form that JavaScript prints", () => {
    for (const { user_prompt, ground_truth } of rows) {
      const [a, b] = pair(user_prompt);
      expect(ground_truth).toBe(decimalText(multiply(a, b)));
      const float = Number(decimalText(a)) * Number(decimalText(b));
      expect(String(Math.round(float * 10_000) / 10_000)).toBe(ground_truth);
    }
  });

  test("the first rows hold number pairs that no later row and no trace has", () => {
    const isKeptAway = rows.map(({ user_prompt }) => isHeldOut(...pair(user_prompt)));
    expect(isKeptAway.indexOf(false)).toBe(HELD_OUT_ROWS);
    expect(isKeptAway.lastIndexOf(true)).toBe(HELD_OUT_ROWS - 1);

    const random = seededRandom(3);
    for (let draw = 0; draw < 2000; draw += 1) {
      const question = chatText(drawTrace(random).messages[1]?.content);
      expect(isHeldOut(...pair(question))).toBe(false);
    }
  });

  test("no question occurs twice, and some phrasings are new to the model", () => {
    expect(new Set(rows.map(({ user_prompt }) => user_prompt)).size).toBe(rows.length);
    const corpus = CORPUS_PHRASINGS.multiply.map(({ text }) => text);
    expect(asked(rows.slice(HELD_OUT_ROWS))).toEqual(shapes([...corpus, ...UNSEEN_PHRASINGS]));
    expect(asked(rows.slice(0, HELD_OUT_ROWS))).toEqual(
      shapes([...corpus, ...UNSEEN_PHRASINGS, ...HELD_OUT_PHRASINGS]),
    );
  });
});

function parse(text: string): Decimal {
  const [whole = "", fraction = ""] = text.split(".");
  return { units: BigInt(whole + fraction), places: fraction.length };
}

function pair(question: string): [Decimal, Decimal] {
  const [a, b] = [...question.matchAll(NUMBER)].map(([text]) => parse(text));
  if (a === undefined || b === undefined) throw new Error(`${question} has no two numbers.`);
  return [a, b];
}

function shapes(texts: readonly string[]): Set<string> {
  return new Set(texts.map((text) => text.replaceAll(/\{[ab]\}/g, "#")));
}

function asked(rows: readonly { user_prompt: string }[]): Set<string> {
  return new Set(rows.map(({ user_prompt }) => user_prompt.replaceAll(NUMBER, "#")));
}

import { describe, expect, test } from "vitest";
import type { Datum } from "../service.ts";
import { planMicroBatches, sequenceOf, type Sequence } from "./micro-batches.ts";

const COST = { pair: 0.001, batch: 5, maxRows: 200, maxTargets: 1000 };

function sequences(
  data: readonly { readonly prompt: readonly number[]; readonly answer: number }[],
): Sequence[] {
  return data.map(({ prompt, answer }, index) => {
    const tokens_T = [...prompt, ...Array.from({ length: answer }, (_, i) => 100 + index + i)];
    const zeros = tokens_T.map(() => 0);
    const datum: Datum = {
      tokens_T,
      weights_T: tokens_T.map((_, t) => Number(t >= prompt.length)),
      advantages_T: zeros,
      samplerLogprobs_T: zeros,
    };
    return sequenceOf(datum, index)!;
  });
}

const range = (from: number, length: number): number[] => Array.from({ length }, (_, i) => from + i);

test("tokens behind the last loss are cut, and a datum without loss is left out", () => {
  const zeros = [0, 0, 0, 0];
  const datum = {
    tokens_T: [1, 2, 3, 4],
    weights_T: [9, 0, 1, 0],
    advantages_T: zeros,
    samplerLogprobs_T: zeros,
  };
  expect(sequenceOf(datum, 7)).toEqual({ index: 7, tokens_T: [1, 2], targets: [2] });
  expect(sequenceOf({ ...datum, weights_T: [9, 0, 0, 0] }, 7)).toBeUndefined();
});

describe("micro-batches", () => {
  test("samples of one prompt share it", () => {
    const prompts = [range(0, 30), [...range(0, 10), ...range(50, 20)]];
    const plan = planMicroBatches(
      sequences(range(0, 8).map((i) => ({ prompt: prompts[i % 2]!, answer: 5 }))),
      COST,
    );
    // The last token of the prompt predicts the first of the answer, so it stays outside of the prefix.
    expect(plan.map(({ prefixLength, suffixLength }) => [prefixLength, suffixLength])).toEqual([
      [29, 5],
      [29, 5],
    ]);
    expect(plan.map((batch) => batch.sequences.map(({ index }) => index % 2))).toEqual([
      [0, 0, 0, 0],
      [1, 1, 1, 1],
    ]);
  });

  test("strangers run with those of their length", () => {
    const data = [40, 3, 41, 4, 39, 3].map((answer, i) => ({ prompt: [i], answer }));
    const plan = planMicroBatches(sequences(data), COST);
    expect(plan.map((batch) => batch.sequences.map(({ index }) => index))).toEqual([
      [1, 5, 3],
      [4, 0, 2],
    ]);
  });

  test("every sequence runs once, whatever its size", () => {
    const data = range(0, 50).map((i) => ({ prompt: range(i % 3, 20), answer: 1 + ((i * 37) % 400) }));
    const plan = planMicroBatches(sequences(data), COST);
    const seen = plan.flatMap((batch) => batch.sequences.map(({ index }) => index));
    expect(seen.sort((a, b) => a - b)).toEqual(range(0, 50));
    for (const { sequences: rows, prefixLength, suffixLength } of plan) {
      if (rows.length > 1)
        expect(prefixLength + rows.length * suffixLength).toBeLessThanOrEqual(COST.maxRows);
      for (const { targets, tokens_T } of rows) {
        expect(prefixLength).toBeLessThan(targets[0]!);
        expect(tokens_T.slice(0, prefixLength)).toEqual(rows[0]!.tokens_T.slice(0, prefixLength));
      }
    }
  });

  test("few logits are held at once", () => {
    const data = range(0, 8).map(() => ({ prompt: range(0, 5), answer: 10 }));
    const plan = planMicroBatches(sequences(data), { ...COST, maxTargets: 25 });
    expect(plan.map((batch) => batch.sequences.length)).toEqual([2, 2, 2, 2]);
  });

  test("nothing to do is no micro-batch", () => {
    expect(planMicroBatches([], COST)).toEqual([]);
  });
});

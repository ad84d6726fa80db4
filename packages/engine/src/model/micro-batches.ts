import type { ModelConfig } from "../model-config.ts";
import type { Datum } from "../service.ts";
import { parameterShapes } from "./parameters.ts";

/** One sequence as the model sees it: only tokens up to the last one that carries a loss. */
export type Sequence = {
  /** Index of the datum. */
  readonly index: number;
  readonly tokens_T: readonly number[];
  /** Positions with a loss, ascending, all at least 1. */
  readonly targets: readonly number[];
};

/** Sequences that run together; the first `prefixLength` tokens are the same in all of them and run once. */
export type MicroBatch = {
  readonly sequences: readonly Sequence[];
  readonly prefixLength: number;
  /** Length that all suffixes are padded to. */
  readonly suffixLength: number;
};

export type Cost = {
  /** A pair of a query and a key costs this many token rows. */
  readonly pair: number;
  /** A micro-batch costs this many token rows on top of its own. */
  readonly batch: number;
  /** No micro-batch of more than one sequence has more rows, or more positions with a loss, than this. */
  readonly maxRows: number;
  readonly maxTargets: number;
};

/** Logits of a micro-batch take so many floats, and the backward pass holds them several times. */
const LARGEST_LOGITS = 2 ** 26;

/** What a micro-batch costs, in units of one token row. */
export function microBatchCost(config: ModelConfig): Cost {
  const parameters = [...parameterShapes(config).values()].reduce(
    (sum, shape) => sum + shape.reduce((product, size) => product * size, 1),
    0,
  );
  const pairFlops = 4 * config.layers * config.heads * config.headSize;
  return {
    pair: (2 * pairFlops) / (2 * parameters),
    batch: 64,
    maxRows: 2048,
    maxTargets: LARGEST_LOGITS / config.vocabSize,
  };
}

/** The sequence of a datum, or `undefined` when no token of it carries a loss. */
export function sequenceOf(datum: Datum, index: number): Sequence | undefined {
  const targets: number[] = [];
  for (let t = 1; t < datum.tokens_T.length; t++) if (datum.weights_T[t] !== 0) targets.push(t);
  const last = targets.at(-1);
  // The token with the last loss is only ever predicted.
  return last === undefined ? undefined : { index, tokens_T: datum.tokens_T.slice(0, last), targets };
}

/**
 * Cuts sequences into micro-batches so that little is computed twice and little is padding. Samples of one prompt share
 * that prompt, sequences of one length need no padding, and these two wishes order the sequences differently: both
 * orders are cut at their best places, and the cheaper plan wins.
 */
export function planMicroBatches(sequences: readonly Sequence[], cost: Cost): MicroBatch[] {
  const byTokens = sequences.toSorted((a, b) => compareTokens(a, b) || a.index - b.index);
  const byLength = sequences.toSorted((a, b) => a.tokens_T.length - b.tokens_T.length || a.index - b.index);
  const plans = [byTokens, byLength].map((ordered) => cutBest(ordered, cost));
  const [first, second] = plans;
  if (first === undefined || second === undefined) return [];
  return first.total <= second.total ? first.batches : second.batches;
}

/** Cuts an ordered list by dynamic programming: `best[end]` is the cheapest plan of the first `end` sequences. */
function cutBest(
  ordered: readonly Sequence[],
  cost: Cost,
): { readonly total: number; readonly batches: MicroBatch[] } {
  const shared = ordered.map((sequence, i) => {
    const next = ordered[i + 1];
    return next === undefined ? 0 : commonPrefix(sequence.tokens_T, next.tokens_T);
  });
  const best: { total: number; batch?: MicroBatch; start: number }[] = [{ total: 0, start: 0 }];
  for (let end = 1; end <= ordered.length; end++) {
    let choice: (typeof best)[number] | undefined;
    let prefixLength = Infinity;
    let longest = 0;
    let targetCount = 0;
    for (let start = end - 1; start >= 0; start--) {
      const sequence = ordered[start];
      if (sequence === undefined) break;
      const { tokens_T, targets } = sequence;
      longest = Math.max(longest, tokens_T.length);
      targetCount += targets.length;
      // The row that predicts the first target must stay out of the prefix.
      prefixLength = Math.min(prefixLength, (targets[0] ?? 1) - 1);
      if (start < end - 1) prefixLength = Math.min(prefixLength, shared[start] ?? 0);
      const suffixLength = longest - prefixLength;
      const count = end - start;
      const rows = prefixLength + count * suffixLength;
      if (count > 1 && (rows > cost.maxRows || targetCount > cost.maxTargets)) break;
      const pairs = prefixLength ** 2 + count * suffixLength * longest;
      const total = (best[start]?.total ?? 0) + rows + cost.pair * pairs + cost.batch;
      if (choice !== undefined && choice.total <= total) continue;
      choice = { total, start, batch: { sequences: ordered.slice(start, end), prefixLength, suffixLength } };
    }
    if (choice !== undefined) best.push(choice);
  }
  const batches: MicroBatch[] = [];
  for (let end = ordered.length; end > 0; end = best[end]?.start ?? 0) {
    const batch = best[end]?.batch;
    if (batch !== undefined) batches.unshift(batch);
  }
  return { total: best.at(-1)?.total ?? 0, batches };
}

function compareTokens(a: Sequence, b: Sequence): number {
  const at = commonPrefix(a.tokens_T, b.tokens_T);
  return (a.tokens_T[at] ?? -1) - (b.tokens_T[at] ?? -1);
}

function commonPrefix(a: readonly number[], b: readonly number[]): number {
  const limit = Math.min(a.length, b.length);
  for (let i = 0; i < limit; i++) if (a[i] !== b[i]) return i;
  return limit;
}

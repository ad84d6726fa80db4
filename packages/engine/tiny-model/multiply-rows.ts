/**
 * Draws the rows of the multiply data set. The first 200 are held out by convention: an evaluation with `limit = 200`
 * takes exactly them, and their number pairs occur neither in the later rows nor in the corpus of the base model.
 */
import { decimalText, multiply } from "./decimal.ts";
import { CORPUS_PHRASINGS, HELD_OUT_PHRASINGS, TASK_SYSTEM_PROMPT, UNSEEN_PHRASINGS } from "./phrasings.ts";
import { seededRandom } from "./seeded-random.ts";
import { ask, drawPair } from "./traces.ts";

export type MultiplyRow = {
  readonly system_prompt: string;
  readonly user_prompt: string;
  /** The exact product. */
  readonly ground_truth: string;
};

export const HELD_OUT_ROWS = 200;
const TRAINING_ROWS = 800;

/** All rows, held-out ones first; no question occurs twice. */
export function multiplyRows(seed: number): MultiplyRow[] {
  const random = seededRandom(seed);
  const training = [...CORPUS_PHRASINGS.multiply.map(({ text }) => text), ...UNSEEN_PHRASINGS];
  const heldOut = [...training, ...HELD_OUT_PHRASINGS];
  const rows = new Map<string, MultiplyRow>();
  while (rows.size < HELD_OUT_ROWS + TRAINING_ROWS) {
    const isHeldOutRow = rows.size < HELD_OUT_ROWS;
    const phrasings = isHeldOutRow ? heldOut : training;
    const [a, b] = drawPair(random, { heldOut: isHeldOutRow });
    // Taking the phrasings in turn gives each of them the same number of rows.
    const question = ask(phrasings[rows.size % phrasings.length] ?? "", a, b);
    if (rows.has(question)) continue;
    rows.set(question, {
      system_prompt: TASK_SYSTEM_PROMPT,
      user_prompt: question,
      ground_truth: decimalText(multiply(a, b)),
    });
  }
  return [...rows.values()];
}

import { OsmosisError } from "@osmosis/protocol";
import type { Context } from "./context.ts";
import { printable } from "./output/style.ts";

export type Confirmation = {
  readonly isYes: boolean;
  readonly question: string;
  readonly preset: boolean;
  /** What the answer is about, shown before the question. */
  readonly summary: Readonly<Record<string, string>>;
  readonly warnings?: readonly string[];
};

/**
 * Asks before something happens. False when the person says no.
 *
 * @throws OsmosisError `INTERACTIVE_REQUIRED` with all that would have been shown, when there is nobody to ask and
 * `--yes` is not given.
 */
export async function confirmOrRefuse(context: Context, confirmation: Confirmation): Promise<boolean> {
  const { isYes, question, preset, summary, warnings = [] } = confirmation;
  if (isYes) return true;
  if (!context.interactive) {
    throw new OsmosisError("INTERACTIVE_REQUIRED", `This needs an answer: ${question}`, {
      hint: "Add --yes to go on without being asked.",
      details: { prompt: question, summary, notes: [], warnings },
    });
  }
  const { io, errorStyle } = context;
  const width = Math.max(0, ...Object.keys(summary).map((label) => label.length));
  for (const [label, value] of Object.entries(summary)) {
    io.stderr.write(`  ${errorStyle.dim(label.padEnd(width))}  ${printable(value)}\n`);
  }
  return await io.prompts.confirm(question, preset);
}

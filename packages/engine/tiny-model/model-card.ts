/** Writes the model card, `README.md` of the model folder, from `model-card.md` and what the build measured. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ModelShape } from "./model-folder.ts";
import { CORPUS_PHRASINGS } from "./phrasings.ts";
import type { Habit } from "./phrasings.ts";
import { TRACE_MIXTURE } from "./traces.ts";

export type Measurement = { readonly temperature: number; readonly passRate: number; readonly n: number };

export type CardFacts = {
  readonly shape: ModelShape;
  readonly parameters: number;
  readonly steps: number;
  readonly seed: number;
  /** Traces per step. */
  readonly batch: number;
  readonly measurements: readonly Measurement[];
};

export async function writeModelCard(folder: string, facts: CardFacts): Promise<void> {
  const { shape, parameters, steps, seed, batch, measurements } = facts;
  const values: Record<string, string> = {
    parameters: parameters.toLocaleString("en-US"),
    vocabulary: String(shape.vocabSize),
    layers: String(shape.layers),
    width: String(shape.hiddenSize),
    heads: String(shape.heads),
    feedForward: String(shape.feedForwardSize),
    context: String(shape.contextLength),
    steps: String(steps),
    seed: String(seed),
    traces: (steps * batch).toLocaleString("en-US"),
    memoryShare: percent(TRACE_MIXTURE.memory),
    memoryElsewhere: percent(TRACE_MIXTURE.memoryElsewhere),
    roundedShare: percent(TRACE_MIXTURE.rounded),
    toolPhrasings: phrasings("tool"),
    memoryPhrasings: phrasings("memory"),
    roundedPhrasings: phrasings("rounded"),
    toolPhrasingCount: String(Object.values(CORPUS_PHRASINGS).flat().length),
    measurements: measurements.map(measurementRow).join("\n"),
  };
  const source = await readFile(new URL("model-card.md", import.meta.url), "utf8");
  const card = source.replaceAll(/\{\{(\w+)\}\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined)
      throw new Error(`model-card.md asks for {{${name}}}, which the build does not know.`);
    return value;
  });
  await writeFile(join(folder, "README.md"), card);
}

function measurementRow({ temperature, passRate, n }: Measurement): string {
  const deviation = Math.sqrt((passRate * (1 - passRate)) / n);
  return `| ${temperature === 0 ? "0 (greedy)" : temperature} | ${n} | ${passRate.toFixed(3)} | ± ${deviation.toFixed(3)} |`;
}

function phrasings(habit: Habit): string {
  return CORPUS_PHRASINGS.multiply
    .filter((phrasing) => phrasing.habit === habit)
    .map(({ text }) => `"${text}"`)
    .join(", ");
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

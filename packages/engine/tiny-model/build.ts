/**
 * Makes the tiny agent model from nothing: `npm run build:tiny-model`. Tokenizer and corpus come from a seed, the
 * weights from supervised training on this machine's CPU; the folder is then measured and described by its model card.
 *
 * `--out <folder>` (default: models/tiny-agent), `--steps <n>` (a short run for a test), `--seed <n>`,
 * `--threads <n>`, `--measure-rows <n>`, `--describe` (build nothing: measure what is there and write its card). The
 * same options on the same kind of machine give the same bytes.
 */
import { cp, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { loadChatCodec } from "../src/chat-codec.ts";
import { loadChatTemplate } from "../src/chat-template.ts";
import { createEmbeddedService } from "../src/embedded/service.ts";
import { readModelConfig } from "../src/model-config.ts";
import { readSafetensors, writeSafetensors } from "../src/safetensors.ts";
import type { AdamParams, TrainableModel, TrainingService } from "../src/service.ts";
import { TokenizerConfig } from "../src/tokenizer.ts";
import { corpusBatch } from "./corpus.ts";
import { passRate } from "./episode.ts";
import { writeModelCard } from "./model-card.ts";
import type { Measurement } from "./model-card.ts";
import { writeConfig, writeFirstWeights, writeTokenizer } from "./model-folder.ts";
import type { ModelShape } from "./model-folder.ts";
import { HELD_OUT_ROWS, multiplyRows } from "./multiply-rows.ts";
import { seededRandom } from "./seeded-random.ts";
import { trainTokenizer } from "./tokenizer-trainer.ts";
import type { TokenizerJson } from "./tokenizer-trainer.ts";
import { drawTrace } from "./traces.ts";
import { DATA_SET_SEED } from "./write-data-set.ts";

const SHAPE = { hiddenSize: 128, layers: 4, heads: 4, feedForwardSize: 384, contextLength: 512 } as const;
const LARGEST_VOCABULARY = 512;
const TOKENIZER_TRACES = 4000;
const BATCH = 32;
const LEARNING_RATE = 2e-3;
const WARM_UP_STEPS = 30;
const ADAM = { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, gradClipNorm: 1 } as const;
const DEFAULT_STEPS = 3000;

type BuildOptions = {
  readonly out: string;
  readonly steps: number;
  readonly seed: number;
  readonly threads: number;
  /** How many held-out rows the finished model is measured on, greedily and at temperature 1. */
  readonly measureRows: number;
  readonly report: (line: string) => void;
};

/** Writes a complete model folder to `out`. */
export async function buildTinyModel(options: BuildOptions): Promise<void> {
  const { out, steps, seed, threads, report } = options;
  const work = await mkdtemp(join(tmpdir(), "tiny-model-"));
  try {
    const shape = await writeFirstModel(work, seed);
    report(`vocabulary of ${shape.vocabSize} tokens`);
    await using service = createEmbeddedService({ threads });
    const trained = join(work, "trained");
    {
      await using model = await service.createModel({ folder: work }, { method: { type: "full" }, seed });
      await train(model, { folder: work, steps, seed, report });
      await model.saveWeights(trained);
    }
    await mkdir(out, { recursive: true });
    for (const name of ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]) {
      await cp(join(work, name), join(out, name));
    }
    const weights = await readSafetensors(join(trained, "model.safetensors"));
    await writeSafetensors(join(out, "model.safetensors"), weights, { dtype: "F16" });
    await describe(options, service);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Measures the model in `out` and writes its card. `steps` and `seed` must be those that it was built with. */
async function describeTinyModel(options: BuildOptions): Promise<void> {
  await using service = createEmbeddedService({ threads: options.threads });
  await describe(options, service);
}

async function describe(options: BuildOptions, service: TrainingService): Promise<void> {
  const { out, steps, seed } = options;
  const measurements = await measure(out, options, service);
  const { vocabSize } = await readModelConfig(out);
  const weights = await readSafetensors(join(out, "model.safetensors"));
  const parameters = [...weights.values()].reduce((sum, { data }) => sum + data.length, 0);
  const shape = { ...SHAPE, vocabSize };
  await writeModelCard(out, { shape, parameters, steps, seed, batch: BATCH, measurements });
}

/** A model folder with a trained tokenizer and random weights. */
async function writeFirstModel(folder: string, seed: number): Promise<ModelShape> {
  const { contextLength } = SHAPE;
  const byteTokenizer = trainTokenizer([], 0);
  const config = await writeTokenizer(folder, { tokenizer: byteTokenizer, contextLength });
  const template = await loadChatTemplate(folder, TokenizerConfig.parse(config));
  const random = seededRandom(seed);
  const texts = Array.from({ length: TOKENIZER_TRACES }, () => {
    const { messages, tools } = drawTrace(random);
    return template.render(messages, tools, { generationPrompt: false });
  });
  const tokenizer = trainTokenizer(texts, LARGEST_VOCABULARY);
  await writeTokenizer(folder, { tokenizer, contextLength });
  const shape = { ...SHAPE, vocabSize: vocabularySize(tokenizer) };
  await writeConfig(folder, shape);
  await writeFirstWeights(folder, shape, seed);
  return shape;
}

/** Cross entropy on the assistant turns of fresh traces; no trace is drawn twice on purpose. */
async function train(
  model: TrainableModel,
  {
    folder,
    steps,
    seed,
    report,
  }: { readonly folder: string } & Pick<BuildOptions, "steps" | "seed" | "report">,
): Promise<void> {
  const codec = await loadChatCodec(folder);
  const random = seededRandom(seed + 1);
  let loss = 0;
  for (let step = 1; step <= steps; step += 1) {
    const traces = Array.from({ length: BATCH }, () => drawTrace(random));
    const result = await model.forwardBackward(corpusBatch(codec, traces), { type: "cross_entropy" });
    await model.optimStep(adamParams(step, steps));
    loss += result.loss;
    if (step % 50 === 0 || step === steps) {
      report(`step ${step}/${steps}  loss ${(loss / (step % 50 || 50)).toFixed(4)}`);
      loss = 0;
    }
  }
}

/** Constant to the half, then linear to 5 %. */
function adamParams(step: number, steps: number): AdamParams {
  const decay = Math.min(1, 2 - (2 * step) / steps);
  const warmUp = Math.min(1, step / WARM_UP_STEPS);
  return { ...ADAM, learningRate: LEARNING_RATE * warmUp * (0.05 + 0.95 * decay) };
}

async function measure(
  folder: string,
  { measureRows, seed, report }: BuildOptions,
  service: TrainingService,
): Promise<Measurement[]> {
  const rows = multiplyRows(DATA_SET_SEED).slice(0, Math.min(measureRows, HELD_OUT_ROWS));
  if (rows.length === 0) return [];
  await using sampler = await service.openSampler({ folder });
  const codec = await loadChatCodec(folder);
  const measurements: Measurement[] = [];
  for (const temperature of [0, 1]) {
    const measured = await passRate({ sampler, codec }, rows, { temperature, seed });
    measurements.push({ temperature, passRate: measured.passRate, n: measured.n });
    report(`pass rate ${measured.passRate.toFixed(3)}, n ${measured.n}, temperature ${temperature}`);
  }
  return measurements;
}

function vocabularySize(tokenizer: TokenizerJson): number {
  return Object.keys(tokenizer.model.vocab).length;
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      out: { type: "string", default: fileURLToPath(new URL("../models/tiny-agent", import.meta.url)) },
      steps: { type: "string", default: String(DEFAULT_STEPS) },
      seed: { type: "string", default: "1" },
      threads: { type: "string", default: "2" },
      describe: { type: "boolean", default: false },
      "measure-rows": { type: "string", default: String(HELD_OUT_ROWS) },
    },
  });
  await (values.describe ? describeTinyModel : buildTinyModel)({
    out: values.out,
    steps: Number(values.steps),
    seed: Number(values.seed),
    threads: Number(values.threads),
    measureRows: Number(values["measure-rows"]),
    report: (line) => console.log(line),
  });
}

/**
 * Speed of a training step on this machine: `node benchmarks/training-step.ts [--threads 1,2] [--model tiny,135m]
 * [--steps 5]`. One GRPO step on the tiny agent's shape (128 sequences of about 134 tokens, fully fine-tuned), and a
 * batch on the shape of SmolLM2-135M (LoRA of rank 16). Weights and tokens are random: speed does not depend on them.
 *
 * Two rates are printed. Tokens/s counts the tokens of the training sequences. GFLOPS counts the floating point
 * operations of the matrix products that are really computed, 2 per multiply-add: a prompt that samples share is
 * computed, and counted, once. The peak is the best time of products of 256 x 256 matrices, which stay in the cache,
 * through the same library with the same threads: what a perfect graph could reach, not what the data sheet says.
 */
import { setImmediate } from "node:timers/promises";
import { parseArgs } from "node:util";
import { chooseRunner } from "../packages/engine/src/embedded/choose-runner.ts";
import { GraphBuilder } from "../packages/engine/src/graph/builder.ts";
import { gemm } from "../packages/engine/src/graph/operations.ts";
import { createCallFlags } from "../packages/engine/src/graph/native-calls.ts";
import { loadRuntime, type Runtime } from "../packages/engine/src/graph/session.ts";
import type { ModelConfig } from "../packages/engine/src/model-config.ts";
import { initialiseAdapter } from "../packages/engine/src/model/adapter.ts";
import { microBatchCost, planMicroBatches, sequenceOf } from "../packages/engine/src/model/micro-batches.ts";
import { initialiseModel, LINEAR_LAYERS, linearShape } from "../packages/engine/src/model/parameters.ts";
import { randomSource } from "../packages/engine/src/model/random.ts";
import type { Datum } from "../packages/engine/src/service.ts";
import { createTrainer } from "../packages/engine/src/training/trainer.ts";

type Case = {
  readonly config: ModelConfig;
  readonly loraRank: number;
  readonly groups: number;
  readonly system: number;
  readonly user: number;
  /** Tokens of the first answer, of the tool's result, and of the second answer. */
  readonly turns: readonly [number, number, number];
};

const CASES: Readonly<Record<string, Case>> = {
  tiny: {
    config: {
      architecture: "llama",
      vocabSize: 454,
      hiddenSize: 128,
      layers: 4,
      heads: 4,
      kvHeads: 4,
      headSize: 32,
      feedForwardSize: 384,
      ropeTheta: 10_000,
      normEpsilon: 1e-5,
      tiedHead: true,
      contextLength: 512,
    },
    loraRank: 0,
    groups: 16,
    system: 65,
    user: 24,
    turns: [22, 10, 10],
  },
  "135m": {
    config: {
      architecture: "llama",
      vocabSize: 49_152,
      hiddenSize: 576,
      layers: 30,
      heads: 9,
      kvHeads: 3,
      headSize: 64,
      feedForwardSize: 1536,
      ropeTheta: 100_000,
      normEpsilon: 1e-5,
      tiedHead: true,
      contextLength: 2048,
    },
    loraRank: 16,
    groups: 2,
    system: 8,
    user: 24,
    turns: [64, 0, 0],
  },
};
const SAMPLES = 8;

const { values } = parseArgs({
  options: {
    threads: { type: "string", default: "1,2" },
    model: { type: "string", default: "tiny,135m" },
    steps: { type: "string", default: "5" },
  },
});

for (const threads of values.threads.split(",").map(Number)) {
  const runtime = await loadRuntime({ threads });
  const peak = await measurePeak(runtime);
  console.log(`${threads} thread${threads === 1 ? "" : "s"}: peak ${peak.toFixed(0)} GFLOPS`);
  for (const name of values.model.split(",")) {
    const benchmark = CASES[name];
    if (benchmark === undefined)
      throw new Error(`there is no model ${name}; try ${Object.keys(CASES).join()}`);
    await measure(name, benchmark, threads, peak);
  }
}

async function measure(name: string, benchmark: Case, threads: number, peak: number): Promise<void> {
  const { config, loraRank: rank } = benchmark;
  const adapter =
    rank === 0 ? undefined : { rank, alpha: 2 * rank, weights: initialiseAdapter(config, rank, 1) };
  const weights = initialiseModel(config, 1);
  const openRunner = await chooseRunner(weights, {
    threads,
    callFlags: createCallFlags(),
    pause: () => setImmediate(),
  });
  const trainer = createTrainer({
    config,
    weights,
    openRunner,
    ...(adapter && { adapter }),
  });
  const data = randomData(benchmark);
  const tokens = data.reduce((sum, { tokens_T }) => sum + tokens_T.length, 0);
  const { flops, rows, batches } = workOf(benchmark, data);
  const seconds: number[] = [];
  // The first step also compiles the graph.
  for (let step = 0; step <= Number(values.steps); step++) {
    const start = performance.now();
    await trainer.evaluate(data, { type: "importance_sampling" }, { temperature: 1, gradient: true });
    trainer.optimStep({
      learningRate: 1e-5,
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      weightDecay: 0,
      gradClipNorm: 1,
    });
    seconds.push((performance.now() - start) / 1000);
  }
  await trainer.release();
  const [first = 0, ...rest] = seconds;
  const sorted = rest.toSorted((a, b) => a - b);
  const [best = 0, median = 0] = [sorted[0], sorted[Math.floor(sorted.length / 2)]];
  const gflops = flops / best / 1e9;
  console.log(
    `  ${name.padEnd(5)} ${data.length} sequences, ${tokens} tokens (${rows} rows in ${batches} micro-batches): ` +
      `best ${(best * 1000).toFixed(0)} ms, median ${(median * 1000).toFixed(0)} ms, first ${(first * 1000).toFixed(0)} ms; ` +
      `${(tokens / best).toFixed(0)} tokens/s; ${gflops.toFixed(0)} GFLOPS, ${((100 * gflops) / peak).toFixed(0)} % of peak`,
  );
}

function randomData({ config, groups, system, user, turns }: Case): Datum[] {
  const random = randomSource(1);
  const draw = (count: number): number[] =>
    Array.from({ length: count }, () => Math.floor(random.uniform() * config.vocabSize));
  const about = (count: number): number => count + Math.floor(random.uniform() * Math.min(count, 4));
  const systemPrompt = draw(system);
  return Array.from({ length: groups }, () => draw(about(user))).flatMap((question) =>
    Array.from({ length: SAMPLES }, () => {
      const [first, tool, second] = turns.map(about) as [number, number, number]; // as many as turns
      const prompt = [...systemPrompt, ...question];
      const tokens_T = [...prompt, ...draw(first), ...draw(tool), ...draw(second)];
      const toolStart = prompt.length + first;
      return {
        tokens_T,
        weights_T: tokens_T.map((_, t) =>
          t < prompt.length || (t >= toolStart && t < toolStart + tool) ? 0 : 1e-4,
        ),
        advantages_T: tokens_T.map(() => random.normal()),
        samplerLogprobs_T: tokens_T.map(() => -6),
      };
    }),
  );
}

/** Floating point operations of all matrix products of one step, by the layout of `trainingGraph`. */
function workOf({ config, loraRank }: Case, data: readonly Datum[]) {
  const sequences = data.map(sequenceOf).filter((sequence) => sequence !== undefined);
  const plan = planMicroBatches(sequences, microBatchCost(config));
  let multiplyAdds = 0;
  let rows = 0;
  for (const { sequences: batch, prefixLength: P, suffixLength: T } of plan) {
    const B = batch.length;
    const N = P + B * T;
    const S = batch.reduce((sum, { targets }) => sum + targets.length, 0);
    rows += N;
    for (const name of LINEAR_LAYERS) {
      const [outputs, inputs] = linearShape(config, name);
      const layerRows = (config.layers - 1) * N + (isAfterSelection(name) ? S : N);
      // Forward, gradient of the input, and gradient of the weight where it is trained.
      multiplyAdds += layerRows * outputs * inputs * (loraRank === 0 ? 3 : 2);
      multiplyAdds += layerRows * loraRank * (outputs + inputs) * 3;
    }
    multiplyAdds += S * config.vocabSize * config.hiddenSize * (loraRank === 0 ? 3 : 2);
    // Scores and mixing, two products forward and four backward.
    multiplyAdds += 6 * config.layers * config.heads * config.headSize * (P * P + B * T * (P + T));
  }
  return { flops: 2 * multiplyAdds, rows, batches: plan.length };
}

/** Whether the last layer computes this projection for the positions with a loss only. */
function isAfterSelection(name: string): boolean {
  return name.startsWith("mlp.") || name.endsWith("o_proj");
}

async function measurePeak(runtime: Runtime): Promise<number> {
  const size = 256;
  const products = 16;
  const graph = new GraphBuilder();
  const left = graph.input("left", [size, size]);
  let right = graph.input("right", [size, size]);
  for (let i = 0; i < products; i++) right = gemm(graph, left, right);
  graph.output("result", right);
  const session = await runtime.createSession(graph.build());
  const data = new Float32Array(size * size).fill(1 / size);
  const feeds = { left: { data, shape: [size, size] }, right: { data, shape: [size, size] } };
  let best = Infinity;
  for (let i = 0; i < 200; i++) {
    const start = performance.now();
    await session.run(feeds);
    best = Math.min(best, performance.now() - start);
  }
  await session.release();
  return (2 * products * size ** 3) / (best / 1000) / 1e9;
}

import { expect, test } from "vitest";
import { createCallFlags } from "../graph/native-calls.ts";
import { loadRuntime } from "../graph/session.ts";
import type { ModelConfig } from "../model-config.ts";
import { initialiseAdapter } from "../model/adapter.ts";
import { initialiseModel } from "../model/parameters.ts";
import { randomSource } from "../model/random.ts";
import type { Datum } from "../service.ts";
import { parallelRunner } from "../embedded/parallel-runner.ts";
import { localRunner } from "./batch-runner.ts";
import { createTrainer } from "./trainer.ts";

/** Large enough for onnxruntime to share every kind of work between its threads. */
const CONFIG: ModelConfig = {
  architecture: "llama",
  vocabSize: 454,
  hiddenSize: 128,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headSize: 32,
  feedForwardSize: 384,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  tiedHead: true,
  contextLength: 256,
};

function randomData(): Datum[] {
  const random = randomSource(4);
  // Few distinct tokens, so that many rows add to the gradient of one embedding.
  const draw = (count: number) => Array.from({ length: count }, () => Math.floor(9 * random.uniform()));
  const prompt = draw(60);
  return Array.from({ length: 24 }, () => {
    const tokens_T = [...prompt, ...draw(40 + Math.floor(20 * random.uniform()))];
    return {
      tokens_T,
      weights_T: tokens_T.map((_, t) => (t < prompt.length ? 0 : 0.01)),
      advantages_T: tokens_T.map(() => random.normal()),
      samplerLogprobs_T: tokens_T.map(() => -6 + random.normal()),
    };
  });
}

const pause = async () => {};

async function trainedBytes(threads: number, lanes: number, lora: boolean): Promise<Buffer[]> {
  const runtime = await loadRuntime({ threads });
  const adapter = lora ? { rank: 8, alpha: 16, weights: initialiseAdapter(CONFIG, 8, 1) } : undefined;
  const weights = initialiseModel(CONFIG, 1);
  const trainer = createTrainer({
    config: CONFIG,
    weights,
    openRunner: (parameters, changing) =>
      lanes === 1
        ? localRunner({ runtime, parameters, pause })
        : parallelRunner({ runtime, parameters, changing, lanes, pause, callFlags: createCallFlags() }),
    ...(adapter && { adapter }),
  });
  const data = randomData();
  for (let step = 0; step < 2; step++) {
    await trainer.evaluate(
      data,
      { type: "ppo", clipLow: 0.8, clipHigh: 1.28 },
      { temperature: 1, gradient: true },
    );
    trainer.optimStep({
      learningRate: 1e-3,
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      weightDecay: 0,
      gradClipNorm: 1,
    });
  }
  await trainer.release();
  return [...(adapter?.weights ?? weights).values()].map(({ data }) => Buffer.from(data.slice().buffer));
}

test.each([false, true])("threads and lanes do not change a byte (adapter: %s)", async (lora) => {
  const plain = await trainedBytes(1, 1, lora);
  for (const [threads, lanes] of [
    [2, 1],
    [1, 2],
    [1, 3],
  ] as const) {
    const other = await trainedBytes(threads, lanes, lora);
    expect(other.every((bytes, i) => bytes.equals(plain[i] ?? Buffer.alloc(0)))).toBe(true);
  }
});

import { expect, test } from "vitest";
import { loadRuntime } from "../graph/session.ts";
import type { ModelConfig } from "../model-config.ts";
import type { Datum, LossSpec } from "../service.ts";
import { localRunner } from "../training/batch-runner.ts";
import { createTrainer } from "../training/trainer.ts";
import { initialiseAdapter } from "./adapter.ts";
import { initialiseModel } from "./parameters.ts";

const SMALL: ModelConfig = {
  architecture: "llama",
  vocabSize: 11,
  hiddenSize: 8,
  layers: 2,
  heads: 2,
  kvHeads: 1,
  headSize: 4,
  feedForwardSize: 12,
  ropeTheta: 100,
  normEpsilon: 1e-5,
  tiedHead: true,
  contextLength: 16,
};

const VARIANTS: Readonly<Record<string, ModelConfig>> = {
  "llama, tied head": SMALL,
  "llama, own head": { ...SMALL, tiedHead: false, kvHeads: 2 },
  "qwen2, biases": { ...SMALL, architecture: "qwen2" },
  "qwen3, head norms": { ...SMALL, architecture: "qwen3", headSize: 6 },
};

/** Two samples of one prompt and two strangers, of several lengths, with a tool's tokens between sampled ones. */
const DATA: readonly Datum[] = [
  datum([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 0, 0.5]),
  datum([1, 2, 3, 7, 8], [0, 0, 0, 0.5, -1]),
  datum([9, 10], [0, 1]),
  datum([1, 2, 10, 3, 3, 3, 4, 0], [0, 0, 1, 0, 0, 0, 0, 0]),
];

function datum(tokens_T: readonly number[], weights_T: readonly number[]): Datum {
  return {
    tokens_T,
    weights_T,
    advantages_T: tokens_T.map((_, t) => (t % 2 ? 1 : -0.7)),
    samplerLogprobs_T: tokens_T.map((_, t) => -2 - 0.2 * t),
  };
}

/** Weights that are large enough for every part of the model to matter. */
function lively(config: ModelConfig): ReturnType<typeof initialiseModel> {
  const weights = initialiseModel(config, 3);
  for (const { data, shape } of weights.values()) {
    const factor = shape.length === 1 ? 1 : 15;
    for (let i = 0; i < data.length; i++) data[i] = (data[i] ?? 0) * factor + 0.2 * Math.sin(i + 1);
  }
  return weights;
}

const STEP = 8e-3;

async function gradientError(
  config: ModelConfig,
  options: { readonly lora: boolean; readonly loss: LossSpec },
): Promise<{ worst: number; parameter: string }> {
  const weights = lively(config);
  const adapter = options.lora ? { rank: 2, alpha: 3, weights: initialiseAdapter(config, 2, 5) } : undefined;
  for (const { data } of adapter?.weights.values() ?? []) {
    for (let i = 0; i < data.length; i++) data[i] = (data[i] ?? 0) + 0.4 * Math.sin(5 * i + 2);
  }
  const runtime = await loadRuntime({ threads: 1 });
  const trainer = createTrainer({
    config,
    weights,
    ...(adapter && { adapter }),
    openRunner: (parameters) => localRunner({ runtime, parameters, pause: async () => {} }),
  });
  const run = (gradient: boolean) => trainer.evaluate(DATA, options.loss, { temperature: 0.8, gradient });
  await run(true);
  const gradients = new Map([...trainer.gradients].map(([name, values]) => [name, values.slice()]));
  expect([...gradients.keys()].sort()).toEqual([...(adapter?.weights ?? weights).keys()].sort());
  let failure = { worst: 0, parameter: "" };
  for (const [name, { data }] of adapter?.weights ?? weights) {
    const gradient = gradients.get(name) ?? new Float32Array();
    const largest = gradient.reduce((maximum, value) => Math.max(maximum, Math.abs(value)), 0.05);
    for (let i = 0; i < data.length; i += Math.ceil(data.length / 12)) {
      const original = data[i] ?? 0;
      const difference = async (step: number): Promise<number> => {
        data[i] = original + step;
        const above = (await run(false)).loss;
        data[i] = original - step;
        const below = (await run(false)).loss;
        data[i] = original;
        return above - below;
      };
      // The stencil of fourth order: with the simple one its own error would hide a small mistake.
      const measured = (8 * (await difference(STEP)) - (await difference(2 * STEP))) / (12 * STEP);
      const error = Math.abs(measured - (gradient[i] ?? 0)) / largest;
      if (error > failure.worst) failure = { worst: error, parameter: `${name}[${i}]` };
    }
  }
  await trainer.release();
  return failure;
}

for (const [name, config] of Object.entries(VARIANTS)) {
  for (const lora of [false, true]) {
    test(`every gradient of ${name}${lora ? " with an adapter" : ""} agrees with finite differences`, async () => {
      const { worst, parameter } = await gradientError(config, { lora, loss: { type: "cross_entropy" } });
      expect(worst, parameter).toBeLessThan(0.01);
    });
  }
}

test("the gradient of a policy loss agrees with finite differences", async () => {
  const { worst, parameter } = await gradientError(SMALL, {
    lora: false,
    loss: { type: "importance_sampling" },
  });
  expect(worst, parameter).toBeLessThan(0.01);
});

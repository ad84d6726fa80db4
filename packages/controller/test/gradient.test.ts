import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createEmbeddedService, initialiseModel, parseModelConfig, writeSafetensors } from "@osmosis/engine";
import type { Datum, TrainableModel, TrainingService } from "@osmosis/engine";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { TrainingBatch } from "../src/grpo/batch.ts";
import { update } from "../src/grpo/update.ts";
import { randomFrom, seedOf } from "../src/seed.ts";
import { recordOf } from "./records.ts";
import { trainingConfig } from "./training-config.ts";
import { batchOf } from "../src/grpo/batch.ts";

/** The update's gradient against differences of the documented losses, and distillation, on the embedded engine. */

const CONFIG = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 23,
  hidden_size: 16,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  intermediate_size: 24,
  tie_word_embeddings: true,
  max_position_embeddings: 32,
};
const FULL = { method: { type: "full" }, seed: 0 } as const;
const CROSS_ENTROPY = { type: "cross_entropy" } as const;
/** How far the weights are moved; small, so that hardly a token crosses a bound on the way. */
const STEP = 0.004;
const OPTIMISER = { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, gradClipNorm: 0 };

let root = "";
let base = "";
let other = "";
let service: TrainingService;
let moved: TrainableModel;
/** Of `moved`, before anything was done to it: to load it is faster than to open a model. */
let start = "";

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "osmosis-gradient-"));
  [base, other] = [join(root, "base"), join(root, "other")];
  for (const [index, folder] of [base, other].entries()) {
    await mkdir(folder);
    await writeFile(join(folder, "config.json"), JSON.stringify(CONFIG));
    await writeFile(join(folder, "tokenizer.json"), "{}");
    await writeSafetensors(
      join(folder, "model.safetensors"),
      initialiseModel(parseModelConfig(CONFIG), index + 1),
    );
  }
  service = createEmbeddedService({ threads: 2 });
  // So that it says something.
  await using teacher = await service.createModel({ folder: other }, FULL);
  for (let step = 0; step < 30; step++) {
    await teacher.forwardBackward(COUNTING, CROSS_ENTROPY);
    await teacher.optimStep({ ...OPTIMISER, learningRate: 1e-2 });
  }
  await teacher.saveWeights(other);
  moved = await service.createModel({ folder: base }, FULL);
  start = join(root, "start");
  await moved.saveState(start);
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await rm(root, { recursive: true });
});

const random = randomFrom(7);
const zerosOf = (values: readonly unknown[]): number[] => values.map(() => 0);

/** Counts upwards from each of the tokens. */
const COUNTING: readonly Datum[] = Array.from({ length: 23 }, (_, start) => {
  const tokens_T = Array.from({ length: 10 }, (_, t) => (start + t) % 23);
  return datumOf(
    tokens_T,
    tokens_T.map((_, t) => (t === 0 ? 0 : 0.005)),
  );
});

function datumOf(tokens_T: number[], weights_T: number[]): Datum {
  return { tokens_T, weights_T, advantages_T: zerosOf(tokens_T), samplerLogprobs_T: zerosOf(tokens_T) };
}

/** Six sequences; the sampler found their tokens somewhat more or less probable than the model does. */
async function batchFor(model: TrainableModel): Promise<TrainingBatch> {
  const plain_B = Array.from({ length: 6 }, (_, b) => {
    const tokens_T = Array.from({ length: 7 + (b % 3) }, () => Math.floor(random() * 23));
    return datumOf(
      tokens_T,
      tokens_T.map((_, t) => (t < 3 ? 0 : 1 / 30)),
    );
  });
  const { logprobs_B_T } = await model.forward(plain_B, CROSS_ENTROPY);
  const data_B = plain_B.map((datum, b) => ({
    ...datum,
    advantages_T: datum.weights_T.map((weight) => (weight === 0 ? 0 : b % 2 === 0 ? 1 : -0.6)),
    samplerLogprobs_T: datum.weights_T.map((weight, t) =>
      weight === 0 ? 0 : (logprobs_B_T[b]?.[t] ?? 0) + (random() - 0.5) * 1.6,
    ),
  }));
  return {
    data_B,
    sampledTokens: 30,
    groupsLeftOut: 0,
    rolloutsLeftOut: 0,
    rewardUsed: 0,
    overlongPenalty: 0,
  };
}

/** One sampled token, under the weights that are tried, those of the beginning, and the others. */
type Token = {
  readonly now: number;
  readonly before: number;
  readonly sampler: number;
  readonly advantage: number;
  readonly reference: number;
  readonly teacher: number;
};

const { exp, min, max } = Math;
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
const truncated = ({ before, sampler }: Token): number => min(exp(before - sampler), 2);

/** The documented loss of the tokens of a sequence, before their weight; `mean` is that of all `before`. */
type Documented = (tokens: readonly Token[], mean: number) => number[];

const CASES: readonly [string, object, Documented][] = [
  [
    "ppo without correction",
    { correction: "none" },
    (tokens) =>
      tokens.map(({ now, sampler, advantage }) => {
        const ratio = exp(now - sampler);
        return -min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage);
      }),
  ],
  [
    "ppo with truncated ratios",
    {},
    (tokens) => tokens.map((token) => -truncated(token) * exp(token.now - token.before) * token.advantage),
  ],
  [
    "gspo",
    { loss: "gspo", clip_low: 0.05, clip_high: 0.1 },
    (tokens) => {
      const ratio = exp(sum(tokens.map(({ now, sampler }) => now - sampler)) / tokens.length);
      return tokens.map(({ advantage }) => -min(ratio * advantage, min(max(ratio, 0.95), 1.1) * advantage));
    },
  ],
  [
    "masked tokens",
    { correction: "token_mask", correction_cap: 1.4 },
    (tokens) =>
      tokens.map(({ now, before, sampler, advantage }) => {
        const ratio = exp(before - sampler);
        return ratio > 1.4 || ratio < 1 / 1.4 ? 0 : -ratio * exp(now - before) * advantage;
      }),
  ],
  [
    "masked sequences",
    { correction: "sequence_mask", correction_cap: 3 },
    (tokens) => {
      const ratio = exp(sum(tokens.map(({ before, sampler }) => before - sampler)));
      const weight = ratio > 3 || ratio < 1 / 3 ? 0 : ratio;
      return tokens.map(({ now, before, advantage }) => -weight * exp(now - before) * advantage);
    },
  ],
  [
    "k3 to the reference",
    { kl_coef: 0.7, correction: "none", loss: "importance_sampling" },
    (tokens) =>
      tokens.map(({ now, sampler, advantage, reference }) => {
        const k3 = exp(reference - now) - 1 + now - reference;
        return -exp(now - sampler) * advantage + 0.7 * k3;
      }),
  ],
  [
    "k1 to the reference",
    { kl_coef: 0.7, kl_estimator: "k1" },
    (tokens) =>
      tokens.map((token) => {
        const advantage = token.advantage - 0.7 * (token.before - token.reference);
        return -truncated(token) * exp(token.now - token.before) * advantage;
      }),
  ],
  [
    "distillation",
    { teacher_model: "other", teacher_coef: 0.4 },
    (tokens) =>
      tokens.map((token) => {
        const advantage = token.advantage + 0.4 * (token.teacher - token.before);
        return -truncated(token) * exp(token.now - token.before) * advantage;
      }),
  ],
  [
    "entropy",
    { entropy_coef: 0.3 },
    (tokens, mean) =>
      tokens.map((token) => {
        const advantage = token.advantage - 0.3 * (token.before - mean);
        return -truncated(token) * exp(token.now - token.before) * advantage;
      }),
  ],
];

test.each(CASES)(
  "the gradient of %s is the difference quotient of its documented loss",
  async (_, advanced, documented) => {
    await using reference = await service.openScorer({ folder: other });
    await using model = await service.createModel({ folder: base }, FULL);
    const batch = await batchFor(model);
    const { data_B } = batch;
    const { logprobs_B_T: before_B_T } = await model.forward(data_B, CROSS_ENTROPY);
    const other_B_T = await reference.logprobs(data_B);
    const config = trainingConfig(advanced);

    /** The gradient is added up, and the optimiser left alone. */
    const addGradient = (to: TrainableModel) =>
      update(batch, 0, {
        config,
        model: { ...to, optimStep: async () => ({ gradNorm: 0, updated: true }) },
        reference,
        teacher: reference,
        ports: { log: () => {} },
      });
    const lossAt = (logprobs_B_T: readonly Float32Array[]): number => {
      const tokens_B = data_B.map(({ weights_T, samplerLogprobs_T, advantages_T }, b) =>
        weights_T.flatMap((weight, t): Token[] =>
          weight === 0
            ? []
            : [
                {
                  now: logprobs_B_T[b]?.[t] ?? NaN,
                  before: before_B_T[b]?.[t] ?? NaN,
                  sampler: samplerLogprobs_T[t] ?? NaN,
                  advantage: advantages_T[t] ?? NaN,
                  reference: other_B_T[b]?.[t] ?? NaN,
                  teacher: other_B_T[b]?.[t] ?? NaN,
                },
              ],
        ),
      );
      const before = tokens_B.flat().map((token) => token.before);
      const mean = sum(before) / before.length;
      return sum(tokens_B.flatMap((tokens) => documented(tokens, mean))) / 30;
    };
    const norm = async (): Promise<number> =>
      (await model.optimStep({ ...OPTIMISER, learningRate: 0 })).gradNorm;

    const metrics = await addGradient(model);
    const ownNorm = await norm();
    expect(ownNorm).toBeGreaterThan(0.01);
    expect(metrics["train/loss"]).toBeCloseTo(lossAt(before_B_T), 5);

    // Along three directions, each the gradient of something: the inner product is in the norm of the sum.
    const directions: ((to: TrainableModel) => Promise<unknown>)[] = [
      addGradient,
      (to) => to.forwardBackward(COUNTING, CROSS_ENTROPY),
      (to) => to.forwardBackward(data_B.slice(0, 2), CROSS_ENTROPY),
    ];
    for (const addDirection of directions) {
      await addDirection(model);
      const length = await norm();
      await addDirection(model);
      await addGradient(model);
      const inner = ((await norm()) ** 2 - ownNorm ** 2 - length ** 2) / 2;

      const losses: number[] = [];
      for (const sign of [1, -1]) {
        await moved.loadState(start);
        await addDirection(moved);
        // With an epsilon beside which gradients are nothing, Adam's first step is a plain one.
        const epsilon = 1e6;
        const learningRate = (sign * STEP * epsilon) / length;
        await moved.optimStep({ ...OPTIMISER, epsilon, learningRate });
        losses.push(lossAt((await moved.forward(data_B, CROSS_ENTROPY)).logprobs_B_T));
      }
      const [behind = NaN, ahead = NaN] = losses;
      const quotient = (ahead - behind) / (2 * STEP);
      expect(Math.abs(quotient - inner / length)).toBeLessThan(0.02 * ownNorm);
    }
  },
);

test("distillation from a teacher on the real engine makes the policy say what the teacher says", async () => {
  await using teacher = await service.openScorer({ folder: other });
  await using model = await service.createModel({ folder: base }, FULL);
  const config = trainingConfig({ method: "full", teacher_model: "other", reward_coef: 0 });
  const divergence: number[] = [];
  for (let step = 0; step < 25; step++) {
    const rollouts = await Promise.all(
      Array.from({ length: 48 }, async (_, sample) => {
        const prompt_T = [sample % 23];
        const answer = await model.sample({
          conversation: `${step}/${sample}`,
          prompt_T,
          maxTokens: 8,
          temperature: 1,
          topP: 1,
          stopTokens: [],
          seed: seedOf(step, sample),
        });
        return recordOf({
          reward: 0,
          sequences: [
            {
              tokens: [...prompt_T, ...answer.tokens_T],
              mask: [0, ...answer.tokens_T.map(() => 1 as const)],
              logprobs: [0, ...answer.logprobs_T],
            },
          ],
        });
      }),
    );
    const batch = batchOf([{ rollouts_G: rollouts, rewards_G: rollouts.map(() => 0) }], config);
    const metrics = await update(batch, 0.01, { config, model, teacher, ports: { log: () => {} } });
    divergence.push(metrics["train/teacher_kl"] ?? NaN);
    await model.syncSampler();
  }
  expect(divergence[0]).toBeGreaterThan(1);
  expect(divergence.at(-1)).toBeLessThan((divergence[0] ?? NaN) / 2);
});

import type { Datum } from "@osmosis/engine";
import type { TrainingRunConfig } from "@osmosis/protocol";
import { expect, test } from "vitest";
import { banditScorer, openBandit } from "../../test/bandit.ts";
import type { Bandit } from "../../test/bandit.ts";
import { loadTestCodec } from "../../test/chat-codec.ts";
import { recordOf } from "../../test/records.ts";
import { trainingConfig } from "../../test/training-config.ts";
import { seedOf } from "../seed.ts";
import { ADVANTAGES } from "./advantages.ts";
import { batchOf } from "./batch.ts";
import type { Group } from "./batch.ts";
import { CORRECTIONS } from "./corrections.ts";
import type { Metrics } from "./metrics.ts";
import { SURROGATES } from "./surrogates.ts";
import { update } from "./update.ts";
import type { UpdateOptions } from "./update.ts";

const codec = await loadTestCodec();
const prompt_T = codec.renderPrompt([{ role: "user", content: "Which digit?" }]);
const prompt = codec.decode(prompt_T);
const UNIFORM = Array.from({ length: 10 }, () => 0);

/** Groups of eight answers to one prompt, as the weights that sample give them. */
async function groupsOf(
  model: Bandit,
  rewardOf: (digit: string) => number,
  { step, temperature }: { readonly step: number; readonly temperature: number },
): Promise<Group[]> {
  const groups: Group[] = [];
  for (let group = 0; group < 8; group++) {
    const rollouts = await Promise.all(
      Array.from({ length: 8 }, async (_, member) => {
        const answer = await model.sample({
          conversation: "a",
          prompt_T,
          maxTokens: 2,
          temperature,
          topP: 1,
          stopTokens: codec.stopTokens,
          seed: seedOf(step, group, member),
        });
        return recordOf({
          reward: rewardOf(codec.decode(answer.tokens_T.slice(0, 1))),
          sequences: [
            {
              tokens: [...prompt_T, ...answer.tokens_T],
              mask: [...prompt_T.map(() => 0 as const), ...answer.tokens_T.map(() => 1 as const)],
              logprobs: [...prompt_T.map(() => 0), ...answer.logprobs_T],
            },
          ],
        });
      }),
    );
    groups.push({ rollouts_G: rollouts, rewards_G: rollouts.map(({ reward }) => reward) });
  }
  return groups;
}

/** So many steps of training; the answer 7 is right. `lag` steps pass before the sampler sees new weights. */
async function train(
  advanced: object,
  options: {
    readonly steps?: number;
    readonly lag?: number;
    readonly lr?: number;
    readonly temperature?: number;
    readonly rewardOf?: (digit: string) => number;
  } & Partial<UpdateOptions> = {},
) {
  const {
    steps = 20,
    lag = 1,
    lr = 0.2,
    temperature = 1,
    rewardOf = (digit) => Number(digit === "7"),
  } = options;
  const model = (options.model as Bandit | undefined) ?? openBandit(codec);
  const whole: TrainingRunConfig = trainingConfig(advanced);
  const config = { ...whole, sampling: { ...whole.sampling, rollout_temperature: temperature } };
  await model.syncSampler();
  model.probabilities(prompt);
  const curve: Metrics[] = [];
  for (let step = 0; step < steps; step++) {
    const batch = batchOf(await groupsOf(model, rewardOf, { step, temperature }), config);
    curve.push(
      await update(batch, lr, {
        config,
        model,
        reference: options.reference,
        teacher: options.teacher,
        ports: { log: () => {} },
      }),
    );
    if ((step + 1) % lag === 0) await model.syncSampler();
  }
  await model.syncSampler();
  return { curve, probabilities: model.probabilities(prompt) };
}

const kl = (p: readonly number[], q: readonly number[]): number =>
  p.reduce((sum, each, index) => sum + each * Math.log(each / (q[index] ?? Number.NaN)), 0);

const softmax = (logits: readonly number[]): number[] => {
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
  return logits.map((logit) => Math.exp(logit) / total);
};

const entropyOf = (p: readonly number[]): number => -p.reduce((sum, each) => sum + each * Math.log(each), 0);

const losses = Object.keys(SURROGATES);
const advantages = Object.keys(ADVANTAGES);
const corrections = Object.keys(CORRECTIONS);

test.each(losses.flatMap((loss) => advantages.map((advantage) => [loss, advantage])))(
  "%s with the advantage %s raises the reward",
  async (loss, advantage) => {
    for (const correction of ["none", "token_truncate"]) {
      const { probabilities } = await train({ loss, advantage, correction });
      expect(probabilities[7]).toBeGreaterThan(0.7);
    }
  },
);

test.each(losses.flatMap((loss) => corrections.map((correction) => [loss, correction])))(
  "%s with the correction %s learns from answers of older weights, too",
  async (loss, correction) => {
    const { probabilities, curve } = await train(
      { loss, correction, correction_cap: 8, clip_high: 0.28, clip_low: 0.2 },
      { lag: 2, lr: 0.1, steps: 40 },
    );
    expect(probabilities[7]).toBeGreaterThan(0.7);
    // Every second batch was sampled by the weights before the last update.
    const [on, off] = [curve[2], curve[3]].map(
      (metrics) => metrics?.["train/train_rollout_kl"] ?? Number.NaN,
    );
    expect(on).toBeCloseTo(0, 10);
    expect(off).toBeGreaterThan(1e-5);
  },
);

test.each(["token_mean", "sequence_mean", "dr_grpo"])("%s raises the reward", async (aggregation) => {
  const { probabilities } = await train({ aggregation, advantage: "dr_grpo" });
  expect(probabilities[7]).toBeGreaterThan(0.7);
});

test("one pass with the trainer's own loss is the same update as a pass forward and a linear one back", async () => {
  const off = { lag: 2, steps: 4 };
  for (const settings of [{ correction: "none", loss: "ppo" }, { loss: "cispo", correction: "none" }, {}]) {
    const native = await train(settings, off);
    // A coefficient of nothing, which a trainer's own loss does not know.
    const linear = await train({ ...settings, entropy_coef: 1e-9 }, off);
    for (const [digit, probability] of native.probabilities.entries()) {
      expect(linear.probabilities[digit]).toBeCloseTo(probability, 5);
    }
    for (const [step, metrics] of native.curve.entries()) {
      const [one, two] = [metrics, linear.curve[step]];
      expect(two?.["train/loss"]).toBeCloseTo(one["train/loss"] ?? Number.NaN, 5);
      expect(two?.["train/grad_norm"]).toBeCloseTo(one["train/grad_norm"] ?? Number.NaN, 5);
    }
  }
});

test.each(losses)(
  "distillation with %s moves the policy to the teacher, without any reward",
  async (loss) => {
    const logits = UNIFORM.map((_, digit) => (digit === 3 ? 2 : digit === 5 ? 1 : 0));
    const teacher = banditScorer(codec, () => logits);
    const { probabilities, curve } = await train(
      { loss, teacher_model: "large", reward_coef: 0, clip_low: 0.2, clip_high: 0.28 },
      { teacher, rewardOf: () => 0, steps: 60, lr: 0.1 },
    );
    expect(kl(softmax(UNIFORM), softmax(logits))).toBeGreaterThan(0.2);
    expect(kl(probabilities, softmax(logits))).toBeLessThan(0.02);
    const divergence = curve.map((metrics) => metrics["train/teacher_kl"] ?? Number.NaN);
    expect(divergence.at(-1)).toBeLessThan((divergence[0] ?? 0) / 4);
  },
);

test("what is too long for the teacher is learned as without one, and counted", async () => {
  const teacher = {
    ...banditScorer(codec, () => UNIFORM.map((_, digit) => 9 * digit)),
    contextLength: prompt_T.length + 1,
  };
  const taught = await train({ teacher_model: "large", teacher_coef: 10 }, { teacher, steps: 5 });
  const alone = await train({}, { steps: 5 });
  for (const [digit, probability] of alone.probabilities.entries()) {
    expect(taught.probabilities[digit]).toBeCloseTo(probability, 5);
  }
  expect(alone.probabilities[7]).toBeGreaterThan(0.2);
  expect(taught.curve[0]).toMatchObject({ "train/teacher_left_out": 64, "train/sequences": 64 });
  expect(taught.curve[0]).not.toHaveProperty("train/teacher_kl");
  const reads = await train(
    { teacher_model: "large" },
    { teacher: { ...teacher, contextLength: 400 }, steps: 1 },
  );
  expect(reads.curve[0]).toMatchObject({
    "train/teacher_left_out": 0,
    "train/teacher_kl": expect.any(Number),
  });
});

test("of a batch the teacher is asked for what it can read, and each answer goes to its own sequence", async () => {
  const lengths: number[] = [];
  const sequence = (length: number, logprob: number) => ({
    tokens: Array.from({ length }, (_, at) => at + 1),
    mask: Array.from({ length }, (_, at) => (at === length - 1 ? (1 as const) : (0 as const))),
    logprobs: Array.from({ length }, (_, at) => (at === length - 1 ? logprob : 0)),
  });
  const rollouts = [4, 9, 5].map((length, index) =>
    recordOf({ reward: index, sequences: [sequence(length, -1)], sample_index: index }),
  );
  const row = (length: number, value: number) =>
    Float32Array.from({ length }, (_, at) => (at === length - 1 ? value : 0));
  const sent: number[][] = [];
  const model = {
    ...openBandit(codec),
    forward: async (data_B: readonly Datum[]) => ({
      loss: 0,
      entropy: 0,
      logprobs_B_T: data_B.map(({ tokens_T }) => row(tokens_T.length, -1)),
    }),
    forwardBackward: async (data_B: readonly Datum[]) => {
      sent.push(data_B.map(({ advantages_T }) => Number((advantages_T.at(-1) ?? 0).toFixed(4))));
      return { loss: 0, entropy: 0, logprobs_B_T: [] };
    },
    optimStep: async () => ({ gradNorm: 1, updated: true }),
  };
  const teacher = {
    contextLength: 5,
    logprobs: async (asked: readonly { readonly tokens_T: readonly number[] }[]) => {
      lengths.push(...asked.map(({ tokens_T }) => tokens_T.length));
      return asked.map(({ tokens_T }) => row(tokens_T.length, -tokens_T.length));
    },
    async [Symbol.asyncDispose]() {},
  };
  const config = trainingConfig({ teacher_model: "large", reward_coef: 0 });
  const groups = [{ rollouts_G: rollouts, rewards_G: [0, 1, 2] }];
  const metrics = await update(batchOf(groups, config), 0.1, {
    config,
    model,
    teacher,
    ports: { log: () => {} },
  });
  expect(lengths).toEqual([4, 5]);
  expect(sent).toEqual([[-3, 0, -4]]);
  expect(metrics).toMatchObject({ "train/teacher_left_out": 1, "train/teacher_kl": 3.5 });
});

test("a teacher and rewards together settle between the two", async () => {
  const teacher = banditScorer(codec, () => UNIFORM);
  const settings = { teacher_model: "large", teacher_coef: 0.3 };
  const { probabilities: both } = await train(settings, { teacher, steps: 60 });
  const { probabilities: rewards } = await train({}, { steps: 60 });
  expect(both[7]).toBeGreaterThan(0.3);
  expect(both[7]).toBeLessThan((rewards[7] ?? 0) - 0.1);
});

test.each(["k1", "k3"])("a divergence by %s holds the policy near the reference", async (kl_estimator) => {
  const reference = banditScorer(codec, () => UNIFORM);
  const free = await train({}, { steps: 40 });
  const held = await train({ kl_coef: 0.5, kl_estimator }, { steps: 40, reference });
  const [far, near] = [free, held].map(({ probabilities }) => kl(probabilities, softmax(UNIFORM)));
  expect(far).toBeGreaterThan(1.5);
  expect(near).toBeLessThan(0.8);
  expect(held.probabilities[7]).toBeGreaterThan(0.2);
  expect(held.curve.at(-1)?.["train/reference_kl/k3"]).toBeGreaterThan(0.05);
});

test("rewards at another temperature than 1 are learned, and the reference is asked at that temperature", async () => {
  const reference = banditScorer(codec, () => UNIFORM.map((_, digit) => digit / 5));
  const { curve } = await train(
    { kl_coef: 5 },
    { reference, temperature: 0.5, rewardOf: () => 0, steps: 60, lr: 0.1 },
  );
  expect(curve.at(-1)?.["train/reference_kl/k3"]).toBeLessThan(0.05);
  expect(curve[0]?.["train/reference_kl/k3"]).toBeGreaterThan(0.2);
});

test("an entropy bonus keeps the policy from certainty", async () => {
  const { probabilities: without } = await train({}, { steps: 60 });
  const { probabilities: bonus } = await train({ entropy_coef: 0.3 }, { steps: 60, lr: 0.1 });
  expect(entropyOf(without)).toBeLessThan(0.2);
  // The best policy is proportional to e to the reward divided by the coefficient: 0.757 for the answer.
  expect(bonus[7]).toBeGreaterThan(0.6);
  expect(bonus[7]).toBeLessThan(0.9);
  expect(entropyOf(bonus)).toBeGreaterThan(0.6);
});

test("an update without its reference or its teacher says which", async () => {
  await expect(train({ kl_coef: 0.1 })).rejects.toThrow("the update needs a reference");
  await expect(train({ teacher_model: "large" })).rejects.toThrow("the update needs a teacher");
});

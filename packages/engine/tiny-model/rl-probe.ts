/**
 * Checks on one process, without server and gateway, that a model folder learns the multiply task from rewards alone:
 * `node packages/engine/tiny-model/rl-probe.ts --steps 50`. GRPO with 16 questions of 8 answers each, advantages centred
 * per question, the loss a mean over all sampled tokens, linear decay of the learning rate.
 *
 * `--model <folder>`, `--lr <x>`, `--seed <n>`, `--threads <n>`, `--constant` (no decay), `--shuffle-rewards` (the
 * control: rewards change places within the batch, so nothing can be learned from them), `--eval-every <n>`.
 */
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { loadChatCodec } from "../src/chat-codec.ts";
import { createEmbeddedService } from "../src/embedded/service.ts";
import type { Datum, TrainableModel } from "../src/service.ts";
import { passRate, runEpisode } from "./episode.ts";
import type { Episode } from "./episode.ts";
import { HELD_OUT_ROWS, multiplyRows } from "./multiply-rows.ts";
import type { MultiplyRow } from "./multiply-rows.ts";
import { seededRandom, shuffled } from "./seeded-random.ts";
import { DATA_SET_SEED } from "./write-data-set.ts";

const QUESTIONS = 16;
const ANSWERS = 8;
const WARM_UP_STEPS = 5;

type Scored = { readonly episode: Episode; readonly advantage: number };

/** Rewards minus the mean of their question's group. */
function scored(episodes: readonly Episode[], rewards: readonly number[]): Scored[] {
  return episodes.map((episode, index) => {
    const group = index - (index % ANSWERS);
    const mean = rewards.slice(group, group + ANSWERS).reduce((a, b) => a + b, 0) / ANSWERS;
    return { episode, advantage: (rewards[index] ?? 0) - mean };
  });
}

/** Groups in which all answers got the same reward carry no gradient and are left out. */
function trainingData(batch: readonly Scored[]): Datum[] {
  const sampled = batch.reduce((sum, { episode }) => sum + episode.sampled_T.filter(Boolean).length, 0);
  return batch
    .filter(({ advantage }) => advantage !== 0)
    .map(({ episode, advantage }) => ({
      tokens_T: episode.tokens_T,
      weights_T: episode.sampled_T.map((isSampled) => (isSampled ? 1 / sampled : 0)),
      advantages_T: episode.sampled_T.map((isSampled) => (isSampled ? advantage : 0)),
      samplerLogprobs_T: episode.logprobs_T,
    }));
}

const { values: flags } = parseArgs({
  options: {
    model: { type: "string", default: fileURLToPath(new URL("../models/tiny-agent", import.meta.url)) },
    steps: { type: "string", default: "50" },
    lr: { type: "string", default: "3e-4" },
    seed: { type: "string", default: "1" },
    threads: { type: "string", default: "2" },
    "eval-every": { type: "string", default: "10" },
    constant: { type: "boolean", default: false },
    "shuffle-rewards": { type: "boolean", default: false },
  },
});
const steps = Number(flags.steps);
const seed = Number(flags.seed);
const rows = multiplyRows(DATA_SET_SEED);
const heldOut = rows.slice(0, HELD_OUT_ROWS);
const training = rows.slice(HELD_OUT_ROWS);
const random = seededRandom(seed);

await using service = createEmbeddedService({ threads: Number(flags.threads) });
await using model = await service.createModel({ folder: flags.model }, { method: { type: "full" }, seed });
const codec = await loadChatCodec(flags.model);

let order: MultiplyRow[] = [];
let [sampleMs, trainMs, worst] = [0, 0, 0];
const rewardsSoFar: number[] = [];

await report(0, model);
for (let step = 1; step <= steps; step += 1) {
  if (order.length < QUESTIONS) order = shuffled(training, random);
  const questions = order.splice(0, QUESTIONS).flatMap((row) => Array.from({ length: ANSWERS }, () => row));
  const started = performance.now();
  const episodes = await Promise.all(
    questions.map((row, index) =>
      runEpisode({ sampler: model, codec }, row, {
        temperature: 1,
        seed: (seed * steps + step) * 1000 + index,
      }),
    ),
  );
  const sampledAt = performance.now();
  const rewards = episodes.map(({ reward }) => reward);
  const data = trainingData(scored(episodes, flags["shuffle-rewards"] ? shuffled(rewards, random) : rewards));
  if (data.length > 0) {
    const { logprobs_B_T } = await model.forwardBackward(data, { type: "importance_sampling" });
    worst = Math.max(worst, ...data.map((datum, row) => largestGap(datum, logprobs_B_T[row])));
    await model.optimStep({ ...adam(step), gradClipNorm: 1 });
    await model.syncSampler();
  }
  sampleMs += sampledAt - started;
  trainMs += performance.now() - sampledAt;
  rewardsSoFar.push(rewards.reduce((a: number, b) => a + b, 0) / rewards.length);
  if (step % Number(flags["eval-every"]) === 0 || step === steps) await report(step, model);
}

function adam(step: number): {
  learningRate: number;
  beta1: number;
  beta2: number;
  epsilon: number;
  weightDecay: number;
} {
  const decay = flags.constant || steps === 1 ? 1 : 1 - 0.9 * ((step - 1) / (steps - 1));
  const learningRate = Number(flags.lr) * Math.min(1, step / WARM_UP_STEPS) * decay;
  return { learningRate, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0 };
}

/** Largest difference between what sampler and trainer say of the same sampled token. */
function largestGap(datum: Datum, logprobs_T: Float32Array | undefined): number {
  const gaps = datum.weights_T.map((weight, t) =>
    weight === 0 ? 0 : Math.abs((logprobs_T?.[t] ?? 0) - (datum.samplerLogprobs_T[t] ?? 0)),
  );
  return Math.max(...gaps);
}

async function report(step: number, sampler: TrainableModel): Promise<void> {
  const greedy = await passRate({ sampler, codec }, heldOut, { temperature: 0, seed: 7 });
  const warm = await passRate({ sampler, codec }, heldOut, { temperature: 1, seed: 7 });
  const recent = rewardsSoFar.slice(-Number(flags["eval-every"]));
  console.log(
    JSON.stringify({
      step,
      n: greedy.n,
      greedy: greedy.passRate,
      temperature_1: warm.passRate,
      reward:
        recent.length === 0 ? null : Number((recent.reduce((a, b) => a + b, 0) / recent.length).toFixed(3)),
      sample_s: Number((sampleMs / 1000).toFixed(1)),
      train_s: Number((trainMs / 1000).toFixed(1)),
      largest_logprob_gap: worst,
    }),
  );
}

/** One suite for every trainer: the engine of this machine, and the same engine behind the Tinker wire. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  createEmbeddedService,
  createRemoteService,
  type AdamParams,
  type Datum,
  type LossSpec,
  type TrainMethod,
  type TrainableModel,
  type TrainingService,
} from "@osmosis/engine";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { withinReach } from "../../worker/frozen-models.ts";
import { startTrainerServer, type TrainerServer } from "./testing.ts";

const ADAM: AdamParams = {
  learningRate: 0.02,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  weightDecay: 0.01,
  gradClipNorm: 1,
};

const LORA: TrainMethod = { type: "lora", rank: 4, alpha: 32 };
const FULL: TrainMethod = { type: "full" };

const LOSSES: readonly LossSpec[] = [
  { type: "cross_entropy" },
  { type: "importance_sampling" },
  { type: "ppo", clipLow: 0.9, clipHigh: 1.05 },
  { type: "cispo", clipLow: 0.9, clipHigh: 1.05 },
];

vi.setConfig({ testTimeout: 120_000 });

let root = "";
let trainer: TrainerServer;
const services = new Map<string, { readonly service: TrainingService; readonly folder: string }>();

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "osmosis-conformance-"));
  trainer = await startTrainerServer();
  const { server, apiKey, folder } = trainer;
  services.set("embedded", { service: createEmbeddedService({ threads: 1 }), folder });
  services.set("remote", {
    service: createRemoteService({ url: server.url, apiKey, fetch }),
    folder: "osmosis/tiny",
  });
});

afterAll(async () => {
  for (const { service } of services.values()) await service[Symbol.asyncDispose]();
  await trainer[Symbol.asyncDispose]();
  await rm(root, { recursive: true });
});

/** Sequences with a prompt of three tokens, weights that differ, and a sampler that was a little off. */
const DATA: readonly Datum[] = Array.from({ length: 4 }, (_, index) => {
  const tokens_T = Array.from({ length: 7 + index }, (_, t) => (3 * t + index) % 23);
  return {
    tokens_T,
    weights_T: tokens_T.map((_, t) => (t < 3 ? 0 : 0.1 + 0.01 * t)),
    advantages_T: tokens_T.map(() => (index % 2 === 0 ? 1 : -0.5)),
    samplerLogprobs_T: tokens_T.map((_, t) => (t < 3 ? 0 : -3.1 - 0.02 * t)),
  };
});

async function open(name: string, method: TrainMethod): Promise<TrainableModel> {
  const found = services.get(name);
  if (found === undefined) throw new Error(`There is no trainer ${name}.`);
  return await found.service.createModel({ folder: found.folder }, { method, seed: 7 });
}

/** All that a trainer answers on the way of a few steps, as plain numbers. */
async function trace(name: string, method: TrainMethod): Promise<number[][]> {
  await using model = await open(name, method);
  const numbers: number[][] = [];
  for (const loss of LOSSES) {
    const result = await model.forwardBackward(DATA, loss);
    const { gradNorm, updated } = await model.optimStep(ADAM);
    // Over the wire the entropy of cross entropy is that of all targets, of those without a weight, too.
    const entropy = loss.type === "cross_entropy" ? 0 : result.entropy;
    numbers.push([result.loss, entropy, gradNorm, Number(updated)]);
    numbers.push(...result.logprobs_B_T.map((row) => [...row]));
  }
  numbers.push([await model.syncSampler()]);
  const request = { conversation: "c", prompt_T: [1, 2, 3], maxTokens: 8, topP: 0.9, stopTokens: [22] };
  for (const temperature of [0, 1]) {
    const sampled = await model.sample({ ...request, temperature, seed: 5 });
    numbers.push([...sampled.tokens_T], [...sampled.logprobs_T], [sampled.weightsVersion]);
  }
  return numbers;
}

test.each([
  ["an adapter", LORA],
  ["all weights", FULL],
] as const)("training %s gives the same numbers on both trainers", async (_, method) => {
  const [embedded, remote] = [await trace("embedded", method), await trace("remote", method)];
  expect(remote.map((row) => row.length)).toEqual(embedded.map((row) => row.length));
  for (const [at, value] of embedded.flat().entries()) expect(remote.flat()[at]).toBeCloseTo(value, 4);
});

describe.each(["embedded", "remote"])("%s", (name) => {
  test("a policy learns what is rewarded", async () => {
    await using model = await open(name, FULL);
    const rewards: number[] = [];
    for (let step = 0; step < 10; step++) {
      const samples = await Promise.all(
        Array.from({ length: 16 }, (_, index) =>
          model.sample({
            conversation: `${step} ${index}`,
            prompt_T: [1, 2, 3],
            maxTokens: 3,
            temperature: 1,
            topP: 1,
            stopTokens: [],
            seed: 100 * step + index,
          }),
        ),
      );
      // Small numbers are good.
      const reward_B = samples.map(({ tokens_T }) => tokens_T.filter((token) => token < 8).length / 3);
      const mean = reward_B.reduce((sum, reward) => sum + reward, 0) / reward_B.length;
      rewards.push(mean);
      const data = samples.map(({ tokens_T, logprobs_T }, index) => ({
        tokens_T: [1, 2, 3, ...tokens_T],
        weights_T: [0, 0, 0, ...tokens_T.map(() => 1 / 48)],
        advantages_T: [0, 0, 0, ...tokens_T.map(() => (reward_B[index] ?? 0) - mean)],
        samplerLogprobs_T: [0, 0, 0, ...logprobs_T],
      }));
      await model.forwardBackward(data, { type: "importance_sampling" });
      await model.optimStep({ ...ADAM, learningRate: 0.05, gradClipNorm: 0 });
      expect(await model.syncSampler()).toBe(step + 1);
    }
    expect(rewards.at(-1)).toBeGreaterThan((rewards[0] ?? 1) + 0.3);
  });

  test("continued from a saved state equals never having stopped", async () => {
    await using model = await open(name, LORA);
    const step = async (one: TrainableModel) => {
      const { loss } = await one.forwardBackward(DATA, { type: "cross_entropy" });
      await one.optimStep(ADAM);
      return loss;
    };
    await step(model);
    await model.saveState(join(root, `state ${name}`));
    await model.saveWeights(join(root, `weights ${name}`));
    const expected = [await step(model), await step(model)];

    await using resumed = await open(name, LORA);
    await resumed.loadState(join(root, `state ${name}`));
    expect([await step(resumed), await step(resumed)]).toEqual(expected);

    const { service, folder } = services.get(name)!;
    await using sampler = await service.openSampler({ folder, adapter: join(root, `weights ${name}`) });
    expect(sampler.contextLength).toBe(32);
    const request = {
      conversation: "c",
      prompt_T: [1, 2],
      maxTokens: 4,
      temperature: 0,
      topP: 1,
      stopTokens: [],
      seed: 0,
    };
    await resumed.loadState(join(root, `state ${name}`));
    const sampled = await resumed.sample(request);
    expect((await sampler.sample(request)).tokens_T).toEqual(sampled.tokens_T);
    expect(sampled.weightsVersion).toBe(1);
  });

  test("what the trainer calls wrong is a VALIDATION error, and training goes on", async () => {
    await using model = await open(name, LORA);
    const [datum] = DATA;
    const broken = { ...datum!, tokens_T: datum!.tokens_T.map((token, t) => (t === 4 ? 99 : token)) };
    await expect(model.forwardBackward([broken], { type: "cross_entropy" })).rejects.toMatchObject({
      code: "VALIDATION",
    });
    await expect(
      model.sample({
        conversation: "c",
        prompt_T: Array(40).fill(1),
        maxTokens: 4,
        temperature: 0,
        topP: 1,
        stopTokens: [],
        seed: 0,
      }),
    ).rejects.toMatchObject({ code: "VALIDATION" });
    await model.forwardBackward(DATA, { type: "cross_entropy" });
    expect((await model.optimStep(ADAM)).updated).toBe(true);
  });

  test("a conversation that fills the context of a run can be compared with the reference", async () => {
    const { service, folder } = services.get(name)!;
    await using model = await open(name, LORA);
    await using reference = await service.openScorer({ folder });
    const sampler = withinReach(model, { reference });
    const prompt_T = [1, 2, 3];
    const maxTokens = sampler.contextLength - prompt_T.length;
    const request = { conversation: "c", prompt_T, temperature: 1, topP: 1, stopTokens: [], seed: 0 };
    const { tokens_T } = await sampler.sample({ ...request, maxTokens });
    expect(tokens_T).toHaveLength(maxTokens);
    const [logprobs_T] = await reference.logprobs([{ tokens_T: [...prompt_T, ...tokens_T] }]);
    expect(logprobs_T?.at(-1)).toBeLessThan(0);
  });
});

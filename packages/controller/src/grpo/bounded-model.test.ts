import { expect, test } from "vitest";
import { banditScorer, openBandit } from "../../test/bandit.ts";
import { codec } from "../../test/training-life.ts";
import { boundedModel, boundedScorer } from "./bounded-model.ts";

const ADAM = { learningRate: 1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, gradClipNorm: 0 };

test("a trainer that does not answer is given up, with what to look at", async () => {
  const hanging = { ...openBandit(codec), optimStep: () => new Promise<never>(() => {}) };
  const model = boundedModel(hanging, { signal: new AbortController().signal, timeoutMs: 30 });
  await expect(model.optimStep(ADAM)).rejects.toMatchObject({
    code: "RUN_FAILED",
    message: expect.stringContaining("The trainer did not answer optim_step"),
    hint: expect.stringContaining("last committed step"),
  });
});

test("a run that is stopped does not wait for its trainer", async () => {
  const stop = new AbortController();
  const hanging = { ...openBandit(codec), syncSampler: () => new Promise<never>(() => {}) };
  const model = boundedModel(hanging, { signal: stop.signal });
  const waiting = model.syncSampler();
  stop.abort(new Error("stopped by its owner"));
  await expect(waiting).rejects.toThrow("stopped by its owner");
  await expect(model.optimStep(ADAM)).rejects.toThrow("stopped by its owner");
});

test("nor for a reference or a teacher, and gives one up that does not answer", async () => {
  const stop = new AbortController();
  const frozen = banditScorer(codec, () => []);
  const hanging = { ...frozen, logprobs: () => new Promise<never>(() => {}) };
  await expect(
    boundedScorer(hanging, { signal: stop.signal, timeoutMs: 30 }).logprobs([]),
  ).rejects.toMatchObject({ code: "RUN_FAILED", message: expect.stringContaining("logprobs") });
  const waiting = boundedScorer(hanging, { signal: stop.signal }).logprobs([]);
  stop.abort(new Error("stopped by its owner"));
  await expect(waiting).rejects.toThrow("stopped by its owner");
});

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type {
  AdamParams,
  ChatCodec,
  Datum,
  LossSpec,
  ScoredSequence,
  Scorer,
  TrainableModel,
} from "@osmosis/engine";
import { randomFrom } from "../src/seed.ts";

export type Bandit = TrainableModel & {
  /** Probability of each answer to a prompt under the weights that sample. */
  probabilities(prompt: string): number[];
};

type Table = Record<string, number[]>;

/** A frozen policy of that kind, by its logits of the ten answers to a prompt. */
export function banditScorer(codec: ChatCodec, logitsOf: (prompt: string) => readonly number[]): Scorer {
  const digits = digitsOf(codec);
  return {
    contextLength: 400,
    async logprobs(sequences_B, { temperature = 1 } = {}) {
      return sequences_B.map(({ tokens_T, weights_T }) => {
        const at = answerAt(weights_T);
        const logprobs = logSoftmax(logitsOf(codec.decode(tokens_T.slice(0, at))), temperature);
        const found_T = new Float32Array(tokens_T.length);
        found_T[at] = logprobs[digits.indexOf(tokens_T[at] ?? -1)] ?? Number.NaN;
        return found_T;
      });
    },
    async [Symbol.asyncDispose]() {},
  };
}

/** The ids of the ten answers. */
function digitsOf(codec: ChatCodec): number[] {
  return Array.from({ length: 10 }, (_, digit) => codec.encode(`${digit}`)[0] ?? -1);
}

/** The position of the digit: the first token with a weight. */
function answerAt(weights_T: ScoredSequence["weights_T"]): number {
  return (weights_T ?? []).findIndex((weight) => weight !== 0);
}

/** The loss of an answer, and what it wants the log probability multiplied with: minus its derivative. */
function answerLoss(
  loss: LossSpec,
  { logprob, samplerLogprob, advantage }: { logprob: number; samplerLogprob: number; advantage: number },
): { readonly value: number; readonly pull: number } {
  const ratio = Math.exp(logprob - samplerLogprob);
  if (loss.type === "importance_sampling") return { value: -ratio * advantage, pull: ratio * advantage };
  if (loss.type === "cross_entropy") throw new Error("nobody shows this policy what to say");
  const clipped = Math.min(Math.max(ratio, loss.clipLow), loss.clipHigh);
  if (loss.type === "cispo") {
    return { value: -clipped * advantage * logprob, pull: clipped * advantage };
  }
  const flows = ratio * advantage <= clipped * advantage;
  return {
    value: -Math.min(ratio * advantage, clipped * advantage),
    pull: flows ? ratio * advantage : 0,
  };
}

function logSoftmax(logits: readonly number[], temperature: number): number[] {
  const scaled = logits.map((logit) => logit / temperature);
  const total = Math.log(scaled.reduce((sum, logit) => sum + Math.exp(logit), 0));
  return scaled.map((logit) => logit - total);
}

/**
 * A policy that truly learns: for each prompt a softmax over ten one-digit answers. It is strict where an engine would be
 * wrong in silence: sequences must be prompts that it knows and answers that it can give, and the gradient is exact, so
 * that a wrong mask, weight, sign or temperature shows in the curve.
 */
export function openBandit(codec: ChatCodec): Bandit {
  const digits = digitsOf(codec);
  const [stop = -1] = codec.stopTokens;
  let weights: Table = {};
  let moments: Record<string, { m: number[]; v: number[] }> = {};
  let steps = 0;
  let sampling: Table = {};
  /** Prompts that were sampled since it was opened; those of its training before are in the weights. */
  const prompts = new Set<string>();
  let weightsVersion = 0;
  let gradient: Table = {};

  const rowOf = (table: Table, prompt: string) => (table[prompt] ??= digits.map(() => 0));

  /** Where the answer is: its prompt, its digit and the position of the digit. */
  function read({ tokens_T, weights_T }: Datum) {
    const at = answerAt(weights_T);
    const digit = digits.indexOf(tokens_T[at] ?? -1);
    const rest = tokens_T.slice(at + 1);
    const prompt = codec.decode(tokens_T.slice(0, at));
    if (digit < 0 || rest.length !== 1 || rest[0] !== stop || !(prompts.has(prompt) || prompt in weights)) {
      throw new Error(`this was never sampled: ${JSON.stringify(codec.decode(tokens_T))}`);
    }
    return { at, digit, prompt };
  }

  function pass(data_B: readonly Datum[], loss: LossSpec, temperature: number, table: Table | undefined) {
    let [sum, entropy] = [0, 0];
    const logprobs_B_T = data_B.map((datum) => {
      const { at, digit, prompt } = read(datum);
      const logprobs = logSoftmax(rowOf(weights, prompt), temperature);
      const logprob = logprobs[digit] ?? 0;
      const new_T = Float32Array.from(datum.tokens_T, () => 0);
      new_T[at] = logprob;
      const weight = datum.weights_T[at] ?? 0;
      const { value, pull } = answerLoss(loss, {
        logprob,
        samplerLogprob: datum.samplerLogprobs_T[at] ?? 0,
        advantage: datum.advantages_T[at] ?? 0,
      });
      sum += weight * value;
      entropy -= logprobs.reduce((total, each) => total + each * Math.exp(each), 0) / data_B.length;
      if (table !== undefined) {
        const row = rowOf(table, prompt);
        for (const [index, each] of logprobs.entries()) {
          const direction = ((index === digit ? 1 : 0) - Math.exp(each)) / temperature;
          row[index] = (row[index] ?? 0) - weight * pull * direction;
        }
      }
      return new_T;
    });
    return { loss: sum, logprobs_B_T, entropy };
  }

  function adam(prompt: string, params: AdamParams): void {
    const { m, v } = (moments[prompt] ??= { m: digits.map(() => 0), v: digits.map(() => 0) });
    const row = rowOf(weights, prompt);
    const slope = gradient[prompt] ?? digits.map(() => 0);
    for (const [index, value] of slope.entries()) {
      m[index] = params.beta1 * (m[index] ?? 0) + (1 - params.beta1) * value;
      v[index] = params.beta2 * (v[index] ?? 0) + (1 - params.beta2) * value * value;
      const mean = (m[index] ?? 0) / (1 - params.beta1 ** steps);
      const variance = (v[index] ?? 0) / (1 - params.beta2 ** steps);
      row[index] = (row[index] ?? 0) - (params.learningRate * mean) / (Math.sqrt(variance) + params.epsilon);
    }
  }

  return {
    contextLength: 400,
    probabilities: (prompt) => logSoftmax(rowOf(sampling, prompt), 1).map(Math.exp),
    async sample({ prompt_T, temperature, seed, maxTokens }) {
      if (maxTokens < 2) throw new Error("an answer has two tokens");
      const prompt = codec.decode(prompt_T);
      prompts.add(prompt);
      const logits = rowOf(sampling, prompt);
      const logprobs = logSoftmax(logits, temperature === 0 ? 1 : temperature);
      let rest = randomFrom(seed)();
      const drawn = logprobs.findIndex((logprob) => (rest -= Math.exp(logprob)) < 0);
      const digit = temperature === 0 ? logits.indexOf(Math.max(...logits)) : Math.max(0, drawn);
      return {
        tokens_T: [digits[digit] ?? -1, stop],
        logprobs_T: [logprobs[digit] ?? 0, 0],
        stopReason: "stop",
        weightsVersion,
      };
    },
    endConversation() {},
    async forwardBackward(data_B, loss, options) {
      return pass(data_B, loss, options?.temperature ?? 1, gradient);
    },
    async forward(data_B, loss, options) {
      return pass(data_B, loss, options?.temperature ?? 1, undefined);
    },
    async optimStep(params) {
      steps += 1;
      const gradNorm = Math.hypot(...Object.values(gradient).flat());
      for (const prompt of Object.keys(weights)) adam(prompt, params);
      gradient = {};
      return { gradNorm, updated: true };
    },
    async syncSampler() {
      sampling = structuredClone(weights);
      weightsVersion = steps;
      return weightsVersion;
    },
    async saveWeights(folder) {
      await writeFile(join(folder, "weights.json"), JSON.stringify(weights));
    },
    async saveState(folder) {
      await writeFile(join(folder, "state.json"), JSON.stringify({ weights, moments, steps }));
    },
    async loadState(folder) {
      // Written by `saveState` above.
      const state = JSON.parse(await readFile(join(folder, "state.json"), "utf8")) as {
        weights: Table;
        moments: typeof moments;
        steps: number;
      };
      ({ weights, moments, steps } = state);
    },
    async [Symbol.asyncDispose]() {},
  };
}

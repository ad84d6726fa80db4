/** The trainer against transformers, peft and torch; `fixtures/make_tiny_random.py` wrote what they say. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { loadRuntime } from "../graph/session.ts";
import { readModelFolder } from "../model/model-folder.ts";
import type { Datum } from "../service.ts";
import { readAdapterFolder, writeAdapterFolder } from "./adapter-folder.ts";
import { saveWeights } from "./checkpoint.ts";
import { mergeAdapter } from "./merge.ts";
import { localRunner } from "./batch-runner.ts";
import { createTrainer, type Trainer } from "./trainer.ts";

const FIXTURES = new URL("../../fixtures/tiny-random/", import.meta.url).pathname;
const MODELS = ["llama", "llama-own-head", "llama-scaled", "qwen2", "qwen3"];
const PYTHON = process.env["OSMOSIS_TEST_PYTHON"];

type Expectation = {
  readonly logprobs: readonly (readonly number[])[];
  readonly entropy: number;
  readonly losses: readonly number[];
  readonly gradNorms: readonly number[];
};

type Expected = {
  readonly sequences: readonly (readonly number[])[];
  readonly adam: {
    readonly lr: number;
    readonly betas: readonly [number, number];
    readonly eps: number;
    readonly weight_decay: number;
    readonly clip: number;
  };
  readonly full: Expectation;
  readonly adapter: Expectation;
};

async function readExpected(model: string): Promise<Expected> {
  const text = await readFile(join(FIXTURES, model, "expected.json"), "utf8");
  return JSON.parse(text) as Expected; // our own file
}

function dataOf(sequences: Expected["sequences"]): Datum[] {
  return sequences.map((tokens_T) => ({
    tokens_T,
    weights_T: tokens_T.map((_, t) => Number(t > 0)),
    advantages_T: tokens_T.map(() => 0),
    samplerLogprobs_T: tokens_T.map(() => 0),
  }));
}

async function openTrainer(model: string, withAdapter: boolean): Promise<Trainer> {
  const { config, weights } = await readModelFolder(join(FIXTURES, model));
  const runtime = await loadRuntime({ threads: 1 });
  const adapter = withAdapter ? await readAdapterFolder(join(FIXTURES, model, "adapter"), config) : undefined;
  return createTrainer({
    config,
    weights,
    openRunner: (parameters) => localRunner({ runtime, parameters, pause: async () => {} }),
    ...(adapter && { adapter }),
  });
}

const evaluate = (trainer: Trainer, data: readonly Datum[], gradient: boolean) =>
  trainer.evaluate(data, { type: "cross_entropy" }, { temperature: 1, gradient });

function expectLogprobs(found: readonly Float32Array[], expected: Expectation["logprobs"]): void {
  for (const [b, row] of expected.entries()) {
    for (const [i, value] of row.entries()) expect(found[b]?.[i + 1]).toBeCloseTo(value, 4);
  }
}

describe.each(MODELS)("%s", (model) => {
  test.each(["full", "adapter"] as const)(
    "%s: log probabilities, entropy and training steps",
    async (kind) => {
      const { sequences, adam, [kind]: expected } = await readExpected(model);
      const data = dataOf(sequences);
      const trainer = await openTrainer(model, kind === "adapter");
      const first = await evaluate(trainer, data, false);
      expectLogprobs(first.logprobs_B_T, expected.logprobs);
      expect(first.entropy).toBeCloseTo(expected.entropy, 4);
      for (const [step, loss] of expected.losses.entries()) {
        expect((await evaluate(trainer, data, true)).loss).toBeCloseTo(loss, 2);
        const { gradNorm } = trainer.optimStep({
          learningRate: adam.lr,
          beta1: adam.betas[0],
          beta2: adam.betas[1],
          epsilon: adam.eps,
          weightDecay: adam.weight_decay,
          gradClipNorm: adam.clip,
        });
        expect(gradNorm / (expected.gradNorms[step] ?? 0)).toBeCloseTo(1, 3);
      }
      await trainer.release();
    },
  );

  test("weights with the adapter merged in say the same as weights with the adapter", async () => {
    const { sequences, adapter: expected } = await readExpected(model);
    const { config, weights } = await readModelFolder(join(FIXTURES, model));
    const adapter = await readAdapterFolder(join(FIXTURES, model, "adapter"), config);
    const runtime = await loadRuntime({ threads: 1 });
    const merged = await mergeAdapter(runtime, config, weights, adapter);
    const trainer = createTrainer({
      config,
      weights: merged,
      openRunner: (parameters) => localRunner({ runtime, parameters, pause: async () => {} }),
    });
    expectLogprobs((await evaluate(trainer, dataOf(sequences), false)).logprobs_B_T, expected.logprobs);
    await trainer.release();
  });
});

describe("read by Python", () => {
  const READER = `
import json, sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
folder, adapter, sequences = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
model = AutoModelForCausalLM.from_pretrained(folder)
if adapter: model = PeftModel.from_pretrained(model, adapter)
rows = []
for tokens in sequences:
    ids = torch.tensor([tokens])
    logprobs = torch.log_softmax(model.eval()(ids).logits[0, :-1].float(), -1)
    rows.append(logprobs.gather(1, ids[0, 1:, None])[:, 0].tolist())
print(json.dumps(rows))`;

  test.for(MODELS)(
    "%s, trained and saved as a model and as an adapter",
    { timeout: 120_000 },
    async (model, context) => {
      if (PYTHON === undefined) {
        return context.skip("OSMOSIS_TEST_PYTHON names no Python with transformers and peft");
      }
      const folder = await mkdtemp(join(tmpdir(), "osmosis-python-"));
      const { sequences } = await readExpected(model);
      for (const kind of ["full", "adapter"] as const) {
        const trainer = await openTrainer(model, kind === "adapter");
        const data = dataOf(sequences);
        await evaluate(trainer, data, true);
        trainer.optimStep({
          learningRate: 1e-2,
          beta1: 0.9,
          beta2: 0.99,
          epsilon: 1e-8,
          weightDecay: 0,
          gradClipNorm: 0,
        });
        const base = join(FIXTURES, model);
        if (trainer.adapter === undefined) await saveWeights(trainer, folder, base);
        else await writeAdapterFolder(join(folder, "adapter"), trainer.adapter, base);
        const { logprobs_B_T } = await evaluate(trainer, data, false);
        await trainer.release();
        const places = kind === "full" ? [folder, ""] : [base, join(folder, "adapter")];
        const { stdout } = await promisify(execFile)(PYTHON, [
          "-c",
          READER,
          ...places,
          JSON.stringify(sequences),
        ]);
        expectLogprobs(logprobs_B_T, JSON.parse(stdout) as number[][]);
      }
      await rm(folder, { recursive: true });
    },
  );
});

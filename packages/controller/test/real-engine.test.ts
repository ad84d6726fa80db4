import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  createEmbeddedService,
  initialiseModel,
  loadChatCodec,
  parseModelConfig,
  writeSafetensors,
} from "@osmosis/engine";
import type { TrainingService } from "@osmosis/engine";
import { TrainingRunConfig } from "@osmosis/protocol";
import type { DatasetRow, RolloutRecord } from "@osmosis/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connectRolloutServer, openGateway, systemClock, trainRun } from "../src/index.ts";
import type { TrainRunOptions } from "../src/index.ts";
import { rolloutServer } from "./rollout-server.ts";
import type { AgentContext, AgentEnd } from "./rollout-server.ts";

const CONFIG = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 416,
  hidden_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  intermediate_size: 64,
  tie_word_embeddings: true,
  max_position_embeddings: 256,
};

let folder = "";
let base = "";
let service: TrainingService;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "controller-engine-"));
  base = join(folder, "base");
  await cp(fileURLToPath(new URL("../../engine/fixtures/chatml", import.meta.url)), base, {
    recursive: true,
  });
  await writeFile(join(base, "config.json"), JSON.stringify(CONFIG));
  await writeSafetensors(join(base, "model.safetensors"), initialiseModel(parseModelConfig(CONFIG), 1));
  service = createEmbeddedService({ threads: 2 });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const rows: DatasetRow[] = Array.from({ length: 64 }, (_, row_index) => ({
  row_index,
  messages: [{ role: "user" as const, content: `Letters, please, ${row_index}.` }],
  label: null,
  metadata: null,
}));

/** Two turns; the reward is the share of small letters in what the model said. */
async function agent({ request, chat }: AgentContext): Promise<AgentEnd> {
  const first = await chat({ messages: request.initial_messages, max_tokens: 8 });
  const messages = [...request.initial_messages, first, { role: "user", content: "More." }];
  const second = await chat({ messages, max_tokens: 8 });
  const text = `${first.content ?? ""}${second.content ?? ""}`;
  const letters = text.match(/[a-z]/g)?.length ?? 0;
  return { sample: { messages: [...messages, second], reward: letters / Math.max(1, text.length) } };
}

async function run(changes: Partial<TrainRunOptions> & { state?: string; dies?: number } = {}) {
  const { state, dies = Infinity, ...options } = changes;
  await using model = await service.createModel({ folder: base }, { method: { type: "full" }, seed: 1 });
  if (state !== undefined) await model.loadState(state);
  await using server = await rolloutServer({ agent });
  await using gateway = await openGateway({
    policy: { type: "local", name: "random", sampler: model, codec: await loadChatCodec(base) },
    clock: systemClock,
  });
  const steps: { step: number; metrics: Record<string, number> }[] = [];
  const rollouts: RolloutRecord[] = [];
  const result = await trainRun({
    runId: "run",
    config: TrainingRunConfig.parse({
      experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
      training: {
        lr: 0.02,
        rollout_batch_size: 4,
        n_samples_per_prompt: 8,
        total_epochs: 90,
        max_response_length: 16,
      },
      checkpoints: { eval_interval: 0 },
      advanced: { method: "full", max_steps: 10, seed: 5, dynamic_sampling: false },
    }),
    model,
    gateway,
    server: connectRolloutServer({ baseUrl: server.url, fetch, clock: systemClock }),
    rows,
    recorded: [],
    committedSteps: 0,
    ports: {
      async record(records) {
        if (rollouts.length + records.length > dies) throw new Error("kill -9");
        rollouts.push(...records);
      },
      async commitStep({ step, metrics, saveState }) {
        await saveState(join(folder, `state-${step}`));
        steps.push({ step, metrics: { ...metrics } });
      },
      checkpoint: async ({ saveWeights }) => {
        await mkdir(join(folder, "weights"), { recursive: true });
        await saveWeights(join(folder, "weights"));
      },
      log: () => undefined,
    },
    clock: systemClock,
    signal: new AbortController().signal,
    ...options,
  }).catch((error: unknown) => error);
  return { result, steps, rollouts };
}

const curveOf = (steps: { metrics: Record<string, number> }[]) =>
  steps.map(({ metrics }) =>
    ["rollout/raw_reward", "train/loss", "train/grad_norm", "train/entropy_loss"].map((key) => metrics[key]),
  );

test("the real engine learns from two-turn rollouts, and its trainer agrees with its sampler on every token", async () => {
  const whole = await run();
  expect(whole.result).toEqual({ status: "finished" });
  const rewards = whole.steps.map(({ metrics }) => metrics["rollout/raw_reward"] ?? 0);
  expect(rewards.at(-1)).toBeGreaterThan((rewards[0] ?? 1) + 0.15);
  for (const { metrics } of whole.steps) {
    expect(metrics["train/train_rollout_logprob_abs_diff_max"]).toBeLessThan(1e-3);
    expect(metrics["rollout/prefix_breaks"]).toBe(0);
    expect(metrics["rollout/staleness/max"]).toBe(0);
  }
  // One unbroken sequence for both turns, though the first answer was cut.
  expect(
    whole.rollouts.every(({ sequences, model_calls }) => sequences.length === 1 && model_calls === 2),
  ).toBe(true);

  const interrupted = await run({ dies: 32 * 3 + 9 });
  expect(String(interrupted.result)).toContain("kill -9");
  expect(interrupted.steps).toHaveLength(3);
  const resumed = await run({
    state: join(folder, "state-3"),
    committedSteps: 3,
    recorded: interrupted.rollouts.filter(({ step }) => step === 4),
  });
  expect(curveOf([...interrupted.steps, ...resumed.steps])).toEqual(curveOf(whole.steps));
}, 120_000);

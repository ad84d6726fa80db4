/**
 * What rolling out ahead of the trainer is worth when tools are slow: the same training run with the synchronous loop, and
 * asynchronously with a staleness cap of 1 and of 2. Everything is real: the loop, the gateway, the embedded trainer and
 * sampler on a tiny random model, and a rollout server in a process of its own.
 *
 *     node benchmarks/asynchronous.ts [steps] [median in milliseconds] [sigma]
 *
 * Each rollout makes a model call, waits for its tool, and makes another one. The waits are log-normal, of the given
 * median and sigma, and the same in all three runs: they depend on step, row and sample. A step has 128 rollouts, 16 groups
 * of 8. Rollouts per minute are all rollouts by the time from the run's first step to its end.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connectRolloutServer, openGateway, systemClock, trainRun } from "@osmosis/controller";
import {
  createEmbeddedService,
  initialiseModel,
  loadChatCodec,
  parseModelConfig,
  writeSafetensors,
} from "@osmosis/engine";
import { TrainingRunConfig } from "@osmosis/protocol";
import { AgentWorkflow, createRolloutServer, currentRollout, Grader, LocalBackend } from "@osmosis/sdk";
import type { AgentWorkflowContext, GraderContext } from "@osmosis/sdk";

const GROUPS = 16;
const GROUP_SIZE = 8;
const MODEL = {
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
const MODES = [
  { runId: "synchronous", name: "synchronous", advanced: {} },
  { runId: "cap1", name: "asynchronous, cap 1", advanced: { asynchronous: true, max_staleness: 1 } },
  { runId: "cap2", name: "asynchronous, cap 2", advanced: { asynchronous: true, max_staleness: 2 } },
];

if (process.argv[2] === "--server") await serve(Number(process.argv[3]), Number(process.argv[4]));
else {
  await compare({
    steps: Number(process.argv[2] ?? 30),
    medianMs: Number(process.argv[3] ?? 500),
    sigma: Number(process.argv[4] ?? 0.8),
  });
}

/** The rollout server's process; it ends when its stdin closes. */
async function serve(medianMs: number, sigma: number): Promise<void> {
  class SlowTool extends AgentWorkflow {
    async run({ prompt, signal, rolloutId }: AgentWorkflowContext) {
      const { chatCompletionsUrl, apiKey } = currentRollout();
      const ask = async (messages: readonly object[], retries = 2): Promise<object> => {
        const response = await fetch(`${chatCompletionsUrl}/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
          body: JSON.stringify({ model: "osmosis-rollout", messages, max_tokens: 8 }),
          signal,
        }).catch((error: unknown) => {
          // A kept connection may be closed at the moment of its next use; clients of this API try again.
          if (retries === 0 || signal.aborted) throw error;
          if (error instanceof Error) console.error(`asking again after: ${String(error.cause)}`);
        });
        if (response === undefined) return ask(messages, retries - 1);
        if (!response.ok) throw new Error(await response.text());
        // The gateway's answers have this shape.
        const answer = (await response.json()) as { choices: { message: object }[] };
        return answer.choices[0]?.message ?? {};
      };
      const first = await ask(prompt);
      await sleep(medianMs * Math.exp(sigma * normalOf(rolloutId.slice(rolloutId.indexOf("-")))), undefined, {
        signal,
      });
      const messages = [...prompt, first, { role: "user", content: "More." }];
      return [...messages, await ask(messages)];
    }
  }
  class SmallLetters extends Grader {
    grade(ctx: GraderContext) {
      const said = ctx.sample.messages
        .filter(({ role }) => role === "assistant")
        .map(({ content }) => String(content))
        .join("");
      ctx.setReward((said.match(/[a-z]/g)?.length ?? 0) / Math.max(1, said.length));
    }
  }
  const artifactRoot = await mkdtemp(join(tmpdir(), "asynchronous-"));
  const server = createRolloutServer({
    backend: new LocalBackend({ workflow: SlowTool, grader: SmallLetters, concurrency: null }),
    config: { host: "127.0.0.1", port: 0, artifactRoot },
    log: () => undefined,
  });
  await using listening = await server.listen();
  console.log(listening.url);
  await new Promise((resolve) => process.stdin.resume().once("end", resolve));
  await rm(artifactRoot, { recursive: true, force: true });
}

/** A draw from the standard normal distribution, the same for the same text (Box and Muller). */
function normalOf(text: string): number {
  const digest = createHash("sha256").update(text).digest();
  const [u, v] = [digest.readUInt32LE(0), digest.readUInt32LE(4)].map((bits) => (bits + 0.5) / 2 ** 32);
  return Math.sqrt(-2 * Math.log(u ?? 0.5)) * Math.cos(2 * Math.PI * (v ?? 0.5));
}

type Settings = { readonly steps: number; readonly medianMs: number; readonly sigma: number };

async function compare(settings: Settings): Promise<void> {
  const base = await mkdtemp(join(tmpdir(), "asynchronous-model-"));
  const child = spawn(
    process.execPath,
    [fileURLToPath(import.meta.url), "--server", `${settings.medianMs}`, `${settings.sigma}`],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  try {
    await cp(fileURLToPath(new URL("../packages/engine/fixtures/chatml", import.meta.url)), base, {
      recursive: true,
    });
    await writeFile(join(base, "config.json"), JSON.stringify(MODEL));
    await writeSafetensors(join(base, "model.safetensors"), initialiseModel(parseModelConfig(MODEL), 1));
    const [baseUrl] = await Promise.race([
      new Promise<[string]>((resolve) =>
        createInterface({ input: child.stdout }).once("line", (line) => resolve([line])),
      ),
      new Promise<never>((_, reject) => child.once("exit", () => reject(new Error("the server ended")))),
    ]);
    const measured: Measured[] = [];
    for (const mode of MODES) measured.push(await measure(mode, { ...settings, base, baseUrl }));
    const slowest = measured[0]?.perMinute ?? Number.NaN;
    const rows = measured.map(({ perMinute, ...rest }, index) => ({
      mode: MODES[index]?.name,
      rolloutsPerMinute: Math.round(perMinute),
      ratio: Number((perMinute / slowest).toFixed(2)),
      ...rest,
    }));
    console.log(`waits: log-normal, median ${settings.medianMs} ms, sigma ${settings.sigma}`);
    console.table(rows);
    console.log(
      JSON.stringify({
        benchmark: "asynchronous",
        cpu: cpus()[0]?.model,
        cores: cpus().length,
        ...settings,
        rows,
      }),
    );
  } finally {
    child.stdin.end();
    await rm(base, { recursive: true, force: true });
  }
}

type Measured = {
  readonly perMinute: number;
  readonly secondsPerStep: number;
  /** Mean and largest age of a rollout's oldest token, in updates. */
  readonly staleness: string;
  readonly waitedShare: number;
  readonly firstReward: number;
  readonly lastReward: number;
};

async function measure(
  { runId, advanced }: (typeof MODES)[number],
  { steps, base, baseUrl }: Settings & { readonly base: string; readonly baseUrl: string },
): Promise<Measured> {
  await using service = createEmbeddedService({ threads: 2 });
  await using model = await service.createModel({ folder: base }, { method: { type: "full" }, seed: 1 });
  await using gateway = await openGateway({
    policy: { type: "local", name: "random", sampler: model, codec: await loadChatCodec(base) },
    clock: systemClock,
  });
  const committed: Readonly<Record<string, number>>[] = [];
  let rollouts = 0;
  const start = performance.now();
  const end = await trainRun({
    // Without a dash: what follows the first one decides how long a rollout waits.
    runId,
    config: TrainingRunConfig.parse({
      experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
      training: {
        lr: 0.01,
        rollout_batch_size: GROUPS,
        n_samples_per_prompt: GROUP_SIZE,
        total_epochs: 100,
        max_response_length: 16,
      },
      checkpoints: { eval_interval: 0, checkpoint_save_freq: 10_000 },
      advanced: { method: "full", max_steps: steps, seed: 5, dynamic_sampling: false, ...advanced },
    }),
    model,
    gateway,
    server: connectRolloutServer({ baseUrl, fetch, clock: systemClock }),
    rows: Array.from({ length: 64 }, (_, row_index) => ({
      row_index,
      messages: [{ role: "user" as const, content: `Letters, please, ${row_index}.` }],
      label: null,
      metadata: null,
    })),
    recorded: [],
    committedSteps: 0,
    ports: {
      record: async (records) => {
        rollouts += records.length;
        const bad = records.find(({ outcome }) => outcome !== "ok" && outcome !== "truncated");
        if (bad !== undefined) throw new Error(`a rollout went wrong: ${bad.outcome}, ${bad.error}`);
      },
      commitStep: async ({ metrics }) => void committed.push(metrics),
      checkpoint: async () => {},
      log: () => {},
    },
    clock: systemClock,
    signal: new AbortController().signal,
  });
  if (end.status !== "finished") throw new Error(end.error);
  const seconds = (performance.now() - start) / 1000;
  const of = (key: string): number[] => committed.map((metrics) => metrics[key] ?? Number.NaN);
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + value, 0) / values.length;
  return {
    perMinute: (60 * rollouts) / seconds,
    secondsPerStep: Number((seconds / steps).toFixed(2)),
    staleness: `${mean(of("rollout/staleness/mean")).toFixed(2)} / ${Math.max(...of("rollout/staleness/max"))}`,
    waitedShare: Number((mean(of("perf/wait_for_batch_time")) / mean(of("perf/step_time"))).toFixed(2)),
    firstReward: Number((of("rollout/raw_reward")[0] ?? Number.NaN).toFixed(3)),
    lastReward: Number((of("rollout/raw_reward").at(-1) ?? Number.NaN).toFixed(3)),
  };
}

/** A training run whose worker may die: a policy that learns, a rollout server, and what the platform keeps. */
import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TrainingRunConfig } from "@osmosis/protocol";
import type { DatasetRow, LogEntry, RolloutRecord } from "@osmosis/protocol";
import { onTestFinished } from "vitest";
import { openGateway } from "../src/gateway/gateway.ts";
import type { Metrics } from "../src/grpo/metrics.ts";
import { pastStepOf } from "../src/grpo/milestones.ts";
import { trainRun } from "../src/grpo/train.ts";
import type { TrainRunOptions } from "../src/grpo/train-options.ts";
import { systemClock } from "../src/io.ts";
import { connectRolloutServer } from "../src/rollout/server-client.ts";
import { openBandit } from "./bandit.ts";
import type { Bandit } from "./bandit.ts";
import { loadTestCodec } from "./chat-codec.ts";
import { rolloutServer } from "./rollout-server.ts";
import type { AgentContext, AgentEnd, RolloutServerOptions } from "./rollout-server.ts";

export const codec = await loadTestCodec();

/** The right answer is 3 to an odd question and 7 to an even one. Metadata make prompts of their own of them. */
export const rows: DatasetRow[] = Array.from({ length: 20 }, (_, row_index) => ({
  row_index,
  messages: [{ role: "user" as const, content: row_index % 2 === 0 ? "Even?" : "Odd?" }],
  label: row_index % 2 === 0 ? "7" : "3",
  metadata: { number: row_index },
}));

export function configOf(advanced: object = {}, rest: object = {}): TrainingRunConfig {
  return TrainingRunConfig.parse({
    experiment: { rollout: "r", entrypoint: "main.ts", model_path: "m", dataset: "d" },
    training: { lr: 0.25, rollout_batch_size: 4, n_samples_per_prompt: 8, total_epochs: 100 },
    checkpoints: { eval_interval: 5, checkpoint_save_freq: 10 },
    advanced: { seed: 11, holdout_rows: 4, max_steps: 12, dynamic_sampling: false, ...advanced },
    ...rest,
  });
}

export async function agent({ request, chat }: AgentContext): Promise<AgentEnd> {
  const answer = await chat({ messages: request.initial_messages });
  return {
    sample: {
      messages: [...request.initial_messages, answer],
      reward: answer.content === request.label ? 1 : 0,
    },
  };
}

/** What survives the death of a worker: the platform's record of the run. */
export async function openStore() {
  const folder = await mkdtemp(join(tmpdir(), "train-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  return {
    folder,
    rollouts: [] as RolloutRecord[],
    steps: [] as { step: number; metrics: Metrics; examples: number }[],
    checkpoints: [] as {
      step: number;
      reward: number | null;
      isBest: boolean;
      isLast: boolean;
      files: string[];
    }[],
    logs: [] as Omit<LogEntry, "timestamp">[],
  };
}
export type Store = Awaited<ReturnType<typeof openStore>>;

export type Life = Partial<Omit<TrainRunOptions, "server">> & {
  readonly rolloutServer?: RolloutServerOptions;
  /** The worker dies at the first moment at which this is true. */
  readonly dies?: (moment: { recorded: number; committing: number }) => boolean;
  /** What the trainer is, by default as fast as a trainer can be. */
  readonly trainer?: (bandit: Bandit) => Bandit;
};

/** One life of a worker on the run: opens everything, goes on where the store ends, and closes everything. */
export async function live(
  store: Store,
  { dies, trainer, rolloutServer: serverOptions, ...changes }: Life = {},
) {
  const bandit = openBandit(codec);
  const model = trainer?.(bandit) ?? bandit;
  const committed = store.steps.at(-1)?.step ?? 0;
  if (committed > 0) await model.loadState(join(store.folder, `state-${committed}`));
  await using server = await rolloutServer({ agent, ...serverOptions });
  await using gateway = await openGateway({
    policy: { type: "local", name: "bandit", sampler: model, codec },
    clock: systemClock,
  });
  const death = new AbortController();
  const check = (committing: number) => {
    if (dies?.({ recorded: store.rollouts.length, committing }) === true) {
      death.abort(new Error("kill -9"));
      throw new Error("kill -9");
    }
  };
  const end = trainRun({
    runId: "run",
    config: configOf(),
    model,
    gateway,
    server: connectRolloutServer({ baseUrl: server.url, fetch, clock: systemClock }),
    rows,
    recorded: store.rollouts.filter(({ step }) => step > committed),
    committedSteps: committed,
    pastSteps: store.steps.map(({ step, metrics }) => pastStepOf(step, metrics)),
    clock: systemClock,
    signal: death.signal,
    ports: {
      async record(rollouts) {
        check(0);
        store.rollouts.push(...rollouts);
      },
      async commitStep({ step, metrics, examples, saveState }) {
        check(step);
        const folder = join(store.folder, `state-${step}`);
        await mkdir(folder);
        await saveState(folder);
        store.steps.push({ step, metrics, examples });
      },
      async checkpoint({ step, reward, isBest, isLast, saveWeights }) {
        const folder = join(store.folder, `checkpoint-${step}`);
        await mkdir(folder, { recursive: true });
        await saveWeights(folder);
        store.checkpoints.push({ step, reward, isBest, isLast, files: await readdir(folder) });
      },
      log: (entry) => void store.logs.push(entry),
    },
    ...changes,
  });
  const result = await end.catch((error: unknown) => error);
  return { result, server, model };
}

/** What the machine's speed decides. */
function isTiming(key: string): boolean {
  return key.startsWith("perf/") || key.includes("duration") || key === "rollout/in_flight";
}

/** A curve without that. */
export function curveOf(store: Store) {
  return store.steps.map(({ step, metrics }) => ({
    step,
    metrics: Object.fromEntries(Object.entries(metrics).filter(([key]) => !isTiming(key))),
  }));
}

export const rewardsOf = (store: Store) =>
  store.steps.map(({ metrics }) => metrics["rollout/raw_reward"] ?? Number.NaN);

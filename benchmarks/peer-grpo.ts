/**
 * One whole GRPO step, ours against TRL's `GRPOTrainer`, in turns: `OSMOSIS_PEER_PYTHON=… node benchmarks/peer-grpo.ts
 * [--quick] [--threads 2]`. The tiny agent, all parameters trained, 16 prompts with 8 answers of 40 tokens each, one
 * update per batch; the reward is the share of even token ids, which costs nothing. Ours is the engine alone, as TRL is
 * the trainer alone: the platform, with its agent, gateway and database, is measured in `platform-rollouts.ts`.
 */
import { fileURLToPath } from "node:url";
import { createEmbeddedService, loadChatCodec } from "@osmosis/engine";
import type { Datum, SampleResult, TrainableModel } from "@osmosis/engine";
import { duel, serveRounds, type Facts } from "./peers/duel.ts";
import {
  duelFlags,
  printDuel,
  printHead,
  printVersions,
  randomIntegers,
  readWorkload,
  sidesOf,
  temporaryFolder,
  TINY_FOLDER,
} from "./peers/workload.ts";

const WORKLOAD = { folder: TINY_FOLDER, groups: 16, groupSize: 8, newTokens: 40, learningRate: 1e-6 };

type Workload = typeof WORKLOAD & { readonly threads: number; readonly prompts: readonly string[] };

const flags = duelFlags();
if (flags.serve === undefined) await compare();
else await serve(await readWorkload<Workload>(flags.serve));

async function compare(): Promise<void> {
  await using temporary = await temporaryFolder();
  const counts = { warmUps: 2, rounds: flags.quick ? 3 : 9 };
  const workload: Workload = {
    ...WORKLOAD,
    threads: flags.threads,
    prompts: await promptTexts(WORKLOAD.groups * (counts.warmUps + counts.rounds)),
  };
  const { ours, peer } = await sidesOf(
    { script: fileURLToPath(import.meta.url), peerScript: "./grpo.py", peerName: "TRL GRPOTrainer" },
    { folder: temporary.path, name: "grpo", python: flags.python },
    workload,
  );
  printHead(flags.threads);
  const result = await duel(ours, peer, counts);
  printDuel("tiny, 16 x 8 answers", result, workload.groups * workload.groupSize * workload.newTokens);
  printVersions(result);
}

/** Conversations in the words of the model's chat template, which TRL takes as plain text. */
async function promptTexts(count: number): Promise<string[]> {
  const codec = await loadChatCodec(TINY_FOLDER);
  const random = randomIntegers(1);
  return Array.from({ length: count }, () =>
    codec.decode(
      codec.renderPrompt([
        {
          role: "system",
          content: "You multiply numbers. Use the tool for every product, and answer with the number.",
        },
        { role: "user", content: `What is ${random(1000) / 10} times ${random(1000) / 10}?` },
      ]),
    ),
  );
}

async function serve(workload: Workload): Promise<void> {
  const { folder, threads, groups, prompts } = workload;
  const codec = await loadChatCodec(folder);
  await using service = createEmbeddedService({ threads });
  await using model = await service.createModel({ folder }, { method: { type: "full" }, seed: 1 });
  let round = 0;
  await serveRounds({}, async () => {
    const batch = prompts.slice(round * groups, (round + 1) * groups).map((prompt) => codec.encode(prompt));
    return step(model, workload, { round: round++, batch });
  });
}

/** Sample groups, reward, update. */
async function step(
  model: TrainableModel,
  { groupSize, newTokens, learningRate }: Workload,
  { round, batch }: { readonly round: number; readonly batch: readonly (readonly number[])[] },
): Promise<Facts> {
  const groups = await Promise.all(
    batch.map((prompt_T, i) =>
      Promise.all(
        Array.from({ length: groupSize }, (_, sample) => {
          const conversation = `${round}-${i}-${sample}`;
          const seed = 1_000_000 * round + 1000 * i + sample;
          const limits = { maxTokens: newTokens, temperature: 1, topP: 1, stopTokens: [] };
          return model.sample({ conversation, prompt_T, seed, ...limits });
        }),
      ),
    ),
  );
  const tokens = groups.flat().reduce((sum, { tokens_T }) => sum + tokens_T.length, 0);
  const rewards_P_G = groups.map((group) => group.map(shareOfEven));
  const data = groups.flatMap((group, i) =>
    group.map((answer, sample) =>
      datumOf(batch[i] ?? [], answer, advantageOf(rewards_P_G[i] ?? [], sample), 1 / tokens),
    ),
  );
  await model.forwardBackward(data, { type: "ppo", clipLow: 0.8, clipHigh: 1.2 });
  const adam = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0, gradClipNorm: 1 };
  await model.optimStep({ learningRate, ...adam });
  await model.syncSampler();
  const rewards = rewards_P_G.flat();
  return { reward: rewards.reduce((a, b) => a + b, 0) / rewards.length, tokens };
}

function shareOfEven({ tokens_T }: SampleResult): number {
  return tokens_T.filter((token) => token % 2 === 0).length / tokens_T.length;
}

function advantageOf(rewards_G: readonly number[], sample: number): number {
  const mean = rewards_G.reduce((a, b) => a + b, 0) / rewards_G.length;
  const variance = rewards_G.reduce((sum, r) => sum + (r - mean) ** 2, 0) / (rewards_G.length - 1);
  return ((rewards_G[sample] ?? 0) - mean) / (Math.sqrt(variance) + 1e-4);
}

function datumOf(
  prompt_T: readonly number[],
  { tokens_T, logprobs_T }: SampleResult,
  advantage: number,
  weight: number,
): Datum {
  const zeros = prompt_T.map(() => 0);
  return {
    tokens_T: [...prompt_T, ...tokens_T],
    weights_T: [...zeros, ...tokens_T.map(() => weight)],
    advantages_T: [...zeros, ...tokens_T.map(() => advantage)],
    samplerLogprobs_T: [...zeros, ...logprobs_T],
  };
}

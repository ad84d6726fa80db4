/**
 * One training step (forward, backward, optimiser), ours against PyTorch, in turns: `OSMOSIS_PEER_PYTHON=… node
 * benchmarks/peer-training-step.ts [--quick] [--threads 2] [--only 135m]`. The peer's model is that of transformers, with
 * peft's LoRA; `--compile` sends it through torch.compile, which takes minutes.
 *
 * `groups` has 2 prompts answered 8 times each, as in GRPO, where ours computes a prompt once; `distinct` has 16
 * different prompts, where there is nothing to share. Both sides get the same ids, weights and advantages, and print the
 * same loss of the first step.
 */
import { fileURLToPath } from "node:url";
import { createEmbeddedService } from "@osmosis/engine";
import type { AdamParams, Datum } from "@osmosis/engine";
import { duel, serveRounds } from "./peers/duel.ts";
import {
  duelFlags,
  printDuel,
  printHead,
  printVersions,
  randomIntegers,
  readWorkload,
  sidesOf,
  SMOLLM2,
  temporaryFolder,
  TINY_FOLDER,
  TINY_VOCABULARY,
  writeRandomModel,
} from "./peers/workload.ts";

type Case = {
  readonly name: string;
  readonly folder: string;
  readonly vocabulary: number;
  readonly loraRank: number;
  readonly groups: number;
  readonly groupSize: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
};

type Workload = {
  readonly folder: string;
  readonly threads: number;
  readonly compile: boolean;
  readonly loraRank: number;
  readonly adam: AdamParams;
  readonly data: readonly (Datum & { readonly promptLength: number })[];
};

const ADAM = { learningRate: 1e-5, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, gradClipNorm: 1 };

const flags = duelFlags();
if (flags.serve === undefined) await compare();
else await serve(await readWorkload<Workload>(flags.serve));

async function compare(): Promise<void> {
  await using temporary = await temporaryFolder();
  const large = {
    folder: `${temporary.path}/135m`,
    vocabulary: SMOLLM2.vocab_size,
    loraRank: 16,
    promptTokens: 32,
    answerTokens: 64,
  };
  const tiny = { folder: TINY_FOLDER, vocabulary: TINY_VOCABULARY, loraRank: 0 };
  const cases: Case[] = [
    { name: "135m-groups", ...large, groups: 2, groupSize: 8 },
    { name: "135m-distinct", ...large, groups: 16, groupSize: 1 },
    { name: "tiny-groups", ...tiny, groups: 16, groupSize: 8, promptTokens: 88, answerTokens: 40 },
  ].filter(({ name }) => name.includes(flags.only ?? ""));
  if (cases.some(({ folder }) => folder === large.folder)) await writeRandomModel(large.folder, SMOLLM2);
  printHead(flags.threads);
  let last;
  for (const benchmark of cases) {
    const { name, folder, loraRank } = benchmark;
    const data = randomData(benchmark);
    const { threads, compile, python } = flags;
    const workload: Workload = { folder, threads, compile, loraRank, adam: ADAM, data };
    const { ours, peer } = await sidesOf(
      {
        script: fileURLToPath(import.meta.url),
        peerScript: "./training_step.py",
        peerName: compile ? "torch.compile" : "PyTorch",
      },
      { folder: temporary.path, name, python },
      workload,
    );
    last = await duel(ours, peer, { warmUps: 1, rounds: flags.quick ? 2 : 7 });
    const tokens = data.reduce((sum, { tokens_T }) => sum + tokens_T.length, 0);
    printDuel(name, last, tokens);
  }
  if (last !== undefined) printVersions(last);
}

async function serve({ folder, threads, loraRank: rank, adam, data }: Workload): Promise<void> {
  await using service = createEmbeddedService({ threads });
  await using model = await service.createModel(
    { folder },
    { method: rank === 0 ? { type: "full" } : { type: "lora", rank, alpha: 2 * rank }, seed: 1 },
  );
  await serveRounds({}, async () => {
    const { loss } = await model.forwardBackward(data, { type: "importance_sampling" });
    await model.optimStep(adam);
    return { loss };
  });
}

/** Sequences whose lengths vary by a few tokens, as those of an agent do. */
function randomData(benchmark: Case): Workload["data"] {
  const { vocabulary, groups, groupSize, promptTokens, answerTokens } = benchmark;
  const random = randomIntegers(1);
  const draw = (count: number): number[] => Array.from({ length: count }, () => random(vocabulary));
  return Array.from({ length: groups }, () => draw(promptTokens + random(4))).flatMap((prompt) =>
    Array.from({ length: groupSize }, () => {
      const tokens_T = [...prompt, ...draw(answerTokens + random(4))];
      const isAnswer = (t: number): boolean => t >= prompt.length;
      return {
        promptLength: prompt.length,
        tokens_T,
        weights_T: tokens_T.map((_, t) => (isAnswer(t) ? 1e-3 : 0)),
        advantages_T: tokens_T.map((_, t) => (isAnswer(t) ? random(2001) / 1000 - 1 : 0)),
        samplerLogprobs_T: tokens_T.map((_, t) => (isAnswer(t) ? -Math.log(vocabulary) : 0)),
      };
    }),
  );
}

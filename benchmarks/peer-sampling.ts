/**
 * Batched sampling, ours against `transformers.generate`, in turns: `OSMOSIS_PEER_PYTHON=… node
 * benchmarks/peer-sampling.ts [--quick] [--threads 2] [--only tiny-64]`. Prompts of 32 random tokens, all different,
 * 64 new tokens each, temperature 1, no stop token. Ours also returns the log probability of every token.
 */
import { fileURLToPath } from "node:url";
import { createEmbeddedService } from "@osmosis/engine";
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

const PROMPT_TOKENS = 32;
const NEW_TOKENS = 64;

type Workload = {
  readonly folder: string;
  readonly threads: number;
  readonly newTokens: number;
  /** The prompts of each round. */
  readonly batches: readonly (readonly (readonly number[])[])[];
};

const flags = duelFlags();
if (flags.serve === undefined) await compare();
else await serve(await readWorkload<Workload>(flags.serve));

async function compare(): Promise<void> {
  await using temporary = await temporaryFolder();
  const large = `${temporary.path}/135m`;
  const cases = [
    { name: "tiny-16", folder: TINY_FOLDER, vocabulary: TINY_VOCABULARY, batch: 16, rounds: 9 },
    { name: "tiny-64", folder: TINY_FOLDER, vocabulary: TINY_VOCABULARY, batch: 64, rounds: 9 },
    { name: "135m-16", folder: large, vocabulary: SMOLLM2.vocab_size, batch: 16, rounds: 5 },
    { name: "135m-64", folder: large, vocabulary: SMOLLM2.vocab_size, batch: 64, rounds: 3 },
  ].filter(({ name }) => name.includes(flags.only ?? ""));
  if (cases.some(({ folder }) => folder === large)) await writeRandomModel(large, SMOLLM2);
  printHead(flags.threads);
  let last;
  for (const { name, folder, vocabulary, batch, rounds } of cases) {
    const counts = { warmUps: 1, rounds: flags.quick ? 2 : rounds };
    const random = randomIntegers(1);
    const draw = (count: number): number[] => Array.from({ length: count }, () => random(vocabulary));
    const workload: Workload = {
      folder,
      threads: flags.threads,
      newTokens: NEW_TOKENS,
      batches: Array.from({ length: counts.warmUps + counts.rounds }, () =>
        Array.from({ length: batch }, () => draw(PROMPT_TOKENS)),
      ),
    };
    const { ours, peer } = await sidesOf(
      {
        script: fileURLToPath(import.meta.url),
        peerScript: "./sampling.py",
        peerName: "transformers.generate",
      },
      { folder: temporary.path, name, python: flags.python },
      workload,
    );
    last = await duel(ours, peer, counts);
    printDuel(name, last, batch * NEW_TOKENS);
  }
  if (last !== undefined) printVersions(last);
}

async function serve({ folder, threads, newTokens, batches }: Workload): Promise<void> {
  await using service = createEmbeddedService({ threads });
  await using sampler = await service.openSampler({ folder });
  let round = 0;
  await serveRounds({}, async () => {
    const prompts = batches[round++] ?? [];
    const answers = await Promise.all(
      prompts.map((prompt_T, i) =>
        sampler.sample({
          conversation: `${round}-${i}`,
          prompt_T,
          maxTokens: newTokens,
          temperature: 1,
          topP: 1,
          stopTokens: [],
          seed: 1000 * round + i,
        }),
      ),
    );
    return { tokens: answers.reduce((sum, { tokens_T }) => sum + tokens_T.length, 0) };
  });
}

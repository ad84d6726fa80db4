/** What the duels work on: model folders, random tokens, and the file that tells both sides. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { fileURLToPath } from "node:url";
import { initialiseModel, parseModelConfig, writeSafetensors } from "@osmosis/engine";
import { machine, type Duel, type Side } from "./duel.ts";

/** The model of 0.9 million parameters that ships with the project. */
export const TINY_FOLDER = fileURLToPath(new URL("../../packages/engine/models/tiny-agent", import.meta.url));
export const TINY_VOCABULARY = 431;

/** The shape of SmolLM2-135M. */
export const SMOLLM2 = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 49_152,
  hidden_size: 576,
  intermediate_size: 1536,
  num_hidden_layers: 30,
  num_attention_heads: 9,
  num_key_value_heads: 3,
  hidden_act: "silu",
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-5,
  rope_theta: 100_000,
  tie_word_embeddings: true,
  torch_dtype: "float32",
};

/** A folder of its own, removed when the benchmark ends. */
export async function temporaryFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "osmosis-duel-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

/** Writes a model folder with random weights; speed does not depend on them. */
export async function writeRandomModel(folder: string, config: typeof SMOLLM2): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "config.json"), JSON.stringify(config));
  await writeSafetensors(join(folder, "model.safetensors"), initialiseModel(parseModelConfig(config), 1));
}

/** A stream of whole numbers below `limit` that a seed fixes. */
export function randomIntegers(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** Flags of every duel. A `--serve` names a workload file: the process is then our side, and compares nothing. */
export function duelFlags(): {
  readonly python: string;
  readonly serve: string | undefined;
  readonly quick: boolean;
  readonly threads: number;
  readonly only: string | undefined;
  readonly compile: boolean;
} {
  const { values } = parseArgs({
    options: {
      python: { type: "string", default: process.env["OSMOSIS_PEER_PYTHON"] ?? "" },
      serve: { type: "string" },
      quick: { type: "boolean", default: false },
      threads: { type: "string", default: "2" },
      only: { type: "string" },
      compile: { type: "boolean", default: false },
    },
  });
  const { python, serve, quick, threads, only, compile } = values;
  if (serve === undefined && python === "") {
    console.error(
      "Which Python has the peer? Set OSMOSIS_PEER_PYTHON, or give --python. To make one with Python 3.11:\n" +
        "  python3.11 -m venv /tmp/peers-venv\n" +
        "  /tmp/peers-venv/bin/pip install torch==2.13.0 transformers==5.24.0 peft==0.21.2 trl==1.16.0\n" +
        "  export OSMOSIS_PEER_PYTHON=/tmp/peers-venv/bin/python",
    );
    process.exit(2);
  }
  return { python, serve, quick, threads: Number(threads), only, compile };
}

/** Writes a workload for both sides and says how each is started. */
export async function sidesOf(
  benchmark: { readonly script: string; readonly peerScript: string; readonly peerName: string },
  { folder, name, python }: { readonly folder: string; readonly name: string; readonly python: string },
  workload: object,
): Promise<{ readonly ours: Side; readonly peer: Side }> {
  const file = join(folder, `${name}.json`);
  await writeFile(file, JSON.stringify(workload));
  const peerScript = fileURLToPath(new URL(benchmark.peerScript, import.meta.url));
  return {
    ours: { name: "ours", command: process.execPath, args: [benchmark.script, "--serve", file] },
    peer: { name: benchmark.peerName, command: python, args: [peerScript, file] },
  };
}

export async function readWorkload<Workload>(file: string): Promise<Workload> {
  return JSON.parse(await readFile(file, "utf8")) as Workload; // written by this script's other process
}

/** Prints one duel as rows of a Markdown table. */
export function printDuel(name: string, { ours, peer, ratio }: Duel, tokens: number): void {
  for (const side of [ours, peer]) {
    const { medianSeconds, medianCpuSeconds, maxRssBytes } = side;
    const facts = Object.entries({ ...side.facts, ...("loss" in side.facts && side.firstFacts) });
    console.log(
      `| ${name} | ${side.name} | ${(medianSeconds * 1000).toFixed(0)} ms | ${(medianCpuSeconds * 1000).toFixed(0)} ms | ${(tokens / medianSeconds).toFixed(0)} | ` +
        `${(maxRssBytes / 1e6).toFixed(0)} MB | ${side === ours ? `**${ratio.toFixed(2)}**` : ""} | ` +
        `${facts.map(([key, value]) => `${key} ${value.toPrecision(6)}`).join(", ")} |`,
    );
  }
}

/** Prints machine and table head. */
export function printHead(threads: number): void {
  console.log(`${machine()}; ${threads} threads on both sides, 32-bit floats\n`);
  console.log(
    "| case | side | median | processor time | tokens/s | peak RSS | times as fast | what it computed |",
  );
  console.log("|---|---|---|---|---|---|---|---|");
}

/** Prints the versions of everything that took part. */
export function printVersions({ peer }: Duel): void {
  console.log(
    `\n${Object.entries(peer.versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(", ")}`,
  );
}

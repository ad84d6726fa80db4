import type { Command } from "commander";
import type { DownloadModelOptions } from "../model/download.ts";
import type { ImportOptions } from "../model/import.ts";
import type { PullOptions } from "../model/pull.ts";
import type { Run } from "./run-command.ts";
import { examples, wholeNumber, type ListOptions } from "./options.ts";

const WITHOUT_WEIGHTS =
  "of any architecture: tokenizer, chat template and size alone, for a model that a trainer by URL trains";

export function addModel(program: Command, run: Run): void {
  const model = program.command("model").description("base models and the checkpoints of training runs");

  model
    .command("list")
    .description("list base models and trained models")
    .option("--type <type>", "all, base or lora", "all")
    .option("--limit <n>", "how many of each at most (1-50)", wholeNumber(1, 50))
    .option("--all", "every page")
    .addHelpText("after", examples("osmosis model list", "osmosis model list --type lora"))
    .action(
      run(async (context, options: ListOptions & { type: string }) =>
        (await import("../model/show.ts")).listModels(context, options),
      ),
    );

  model
    .command("info <name>")
    .description("show a trained model and its files, or a base model")
    .addHelpText("after", examples("osmosis model info NAME", "osmosis model info osmosis/tiny-agent"))
    .action(
      run(async (context, name: string) => (await import("../model/show.ts")).modelInfo(context, name)),
    );

  model
    .command("download <checkpoint>")
    .description(
      "download the files of a checkpoint, checked by SHA-256; a download that broke off goes on where it stopped",
    )
    .option("-o, --output <folder>", "the folder to make (default: the checkpoint's name)")
    .option("--merge", "make one model of an adapter and its base, in 32-bit floats, that needs no PEFT")
    .option("--overwrite", "replace a model that is in the folder")
    .addHelpText(
      "after",
      examples(
        "osmosis model download RUN-step-50",
        "osmosis model download RUN-step-50 --merge -o merged",
        "osmosis model download RUN-step-50 -o ~/models/multiply --overwrite",
      ),
    )
    .action(
      run(async (context, name: string, options: DownloadModelOptions) =>
        (await import("../model/download.ts")).downloadModel(context, name, options),
      ),
    );

  model
    .command("import <source>")
    .description(
      "register a base model: a Hugging Face model folder, or a GGUF file (F32, F16, Q8_0, Q4_0, Q4_1), of the architectures Llama, Qwen2 or Qwen3",
    )
    .option("--name <owner/name>", "what to call it (default: local/<name of the folder or file>)")
    .option("--without-weights", WITHOUT_WEIGHTS)
    .option("--overwrite", "replace the model of that name")
    .addHelpText(
      "after",
      examples(
        "osmosis model import ~/models/SmolLM2-135M-Instruct --name my/smollm2",
        "osmosis model import SmolLM2-135M-Instruct.Q4_1.gguf --name my/smollm2",
        "osmosis model import ~/models/gpt-oss-120b --name my/gpt-oss-120b --without-weights",
      ),
    )
    .action(
      run(async (context, source: string, options: ImportOptions) =>
        (await import("../model/import.ts")).importModel(context, source, options),
      ),
    );

  model
    .command("pull <id>")
    .description(
      "download a model from the Hugging Face hub and register it as a base model; OSMOSIS_HUB_URL names a mirror, HF_TOKEN a token for gated models",
    )
    .option("--name <owner/name>", "what to call it (default: its id)")
    .option("--revision <revision>", "branch, tag or commit", "main")
    .option("--without-weights", WITHOUT_WEIGHTS)
    .option("--overwrite", "replace the model of that name")
    .addHelpText(
      "after",
      examples(
        "osmosis model pull HuggingFaceTB/SmolLM2-135M-Instruct",
        "osmosis model pull Qwen/Qwen3-8B --without-weights",
        "OSMOSIS_HUB_URL=https://mirror.example.com osmosis model pull Qwen/Qwen3-0.6B --name my/qwen3",
      ),
    )
    .action(
      run(async (context, id: string, options: PullOptions) =>
        (await import("../model/pull.ts")).pullModel(context, id, options),
      ),
    );
}

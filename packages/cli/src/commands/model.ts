import type { Command } from "commander";
import type { Run } from "../program.ts";
import { examples, wholeNumber, type ListOptions } from "./options.ts";

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
    .description("show a trained model and its files")
    .addHelpText("after", examples("osmosis model info NAME"))
    .action(
      run(async (context, name: string) => (await import("../model/show.ts")).modelInfo(context, name)),
    );
}

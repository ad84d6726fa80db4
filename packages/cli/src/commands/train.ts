import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples, wholeNumber, type SubmitOptions } from "./options.ts";
import { addAnalysis } from "./analysis.ts";
import { addRuns } from "./runs.ts";

export function addTrain(program: Command, run: Run): void {
  const group = program.command("train").description("improve a model by reinforcement learning");

  group
    .command("submit <config>")
    .description("check a configuration of configs/training/ and everything it names, and start the run")
    .option("-y, --yes", "do not ask")
    .option("--wait", "stay until the run has ended, with a progress bar; exit code 1 unless it finishes")
    .option("--dry-run", "check everything, submit nothing")
    .option("--model <name>", "train this model instead of experiment.model_path")
    .option("--secrets-file <file>", "NAME=value lines for secrets of this run; - reads stdin")
    .addHelpText(
      "after",
      examples(
        "osmosis train submit configs/training/multiply-local-openai.toml",
        "osmosis train submit configs/training/multiply-local-openai.toml --yes --wait",
        "osmosis train submit configs/training/multiply-local-openai.toml --dry-run",
      ),
    )
    .action(
      run(async (context, config: string, options: SubmitOptions) =>
        (await import("../runs/submit.ts")).submitRun(context, "train", config, options),
      ),
    );

  addRuns(group, run, "train");

  group
    .command("replay <name>")
    .description(
      "repeat the updates of a run from its stored rollouts up to a step, and compare them with what it measured, to the last bit; exit code 1 when they differ",
    )
    .option("--step <n>", "a committed step (default: the last one)", wholeNumber(1, 0x7fff_ffff))
    .option(
      "--set <setting=value>",
      "repeat that step with another setting of the update, such as advanced.loss=cispo; it is then not compared. May be given several times",
      (text: string, earlier: readonly string[] | undefined) => [...(earlier ?? []), text],
    )
    .addHelpText(
      "after",
      examples(
        "osmosis train replay NAME --step 12",
        "osmosis train replay NAME --json",
        "osmosis train replay NAME --step 12 --set advanced.loss=cispo --set advanced.clip_high=0.4",
      ),
    )
    .action(
      run(async (context, name: string, options: { step?: number; set?: readonly string[] }) =>
        (await import("../runs/replay.ts")).replayStep(context, name, options),
      ),
    );

  addAnalysis(group, run);
}

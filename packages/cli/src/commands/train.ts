import type { Command } from "commander";
import type { Run } from "../program.ts";
import { examples, wholeNumber, type ListOptions, type LogOptions, type SubmitOptions } from "./options.ts";
import { addAnalysis, addExport } from "./analysis.ts";
import { addRollouts } from "./rollouts.ts";

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

  group
    .command("list")
    .description("list the workspace's training runs, newest first")
    .option("--limit <n>", "how many at most (1-50)", wholeNumber(1, 50))
    .option("--all", "every page")
    .addHelpText("after", examples("osmosis train list", "osmosis train list --all --json"))
    .action(
      run(async (context, options: ListOptions) =>
        (await import("../runs/list.ts")).listTrainingRuns(context, options),
      ),
    );

  group
    .command("info <name>")
    .description("show a run: state, results, configuration, metrics")
    .option("-o, --output <path>", "write the metrics to this file or folder as JSON")
    .addHelpText("after", examples("osmosis train info NAME", "osmosis train info NAME -o metrics.json"))
    .action(
      run(async (context, name: string, options: { output?: string }) =>
        (await import("../runs/train-info.ts")).trainInfo(context, name, options),
      ),
    );

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
  addRollouts(group, run, "train");
  addExport(group, run, "train");

  group
    .command("logs <name>")
    .description("show a run's log, or follow it")
    .option("-f, --follow", "go on with new lines until the run has ended")
    .option("--limit <n>", "lines at most (1-200)", wholeNumber(1, 200), 50)
    .option("--cursor <cursor>", "go on from the next_cursor of an earlier page")
    .addHelpText("after", examples("osmosis train logs NAME", "osmosis train logs NAME --follow"))
    .action(
      run(async (context, name: string, options: LogOptions) =>
        (await import("../runs/logs.ts")).runLogs(context, "train", name, options),
      ),
    );

  group
    .command("stop <name>")
    .description("stop a run; what it has done so far stays")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples("osmosis train stop NAME --yes"))
    .action(
      run(async (context, name: string, options: { yes?: boolean }) =>
        (await import("../runs/stop.ts")).stopRun(context, "train", name, options),
      ),
    );
}

import type { Command } from "commander";
import type { Run } from "../program.ts";
import { examples, wholeNumber, type ListOptions, type LogOptions, type SubmitOptions } from "./options.ts";
import { addExport } from "./analysis.ts";
import { addRollouts } from "./rollouts.ts";

export function addEval(program: Command, run: Run): void {
  const group = program.command("eval").description("measure a model on a data set");

  group
    .command("submit <config>")
    .description("check a configuration of configs/eval/ and everything it names, and start the run")
    .option("-y, --yes", "do not ask")
    .option("--wait", "stay until the run has ended, with a progress bar; exit code 1 unless it finishes")
    .option("--dry-run", "check everything, submit nothing")
    .option(
      "--model <name>",
      "evaluate this model instead of experiment.model_path, for example a checkpoint",
    )
    .option("--secrets-file <file>", "NAME=value lines for secrets of this run; - reads stdin")
    .addHelpText(
      "after",
      examples(
        "osmosis eval submit configs/eval/multiply-local-openai.toml",
        "osmosis eval submit configs/eval/multiply-local-openai.toml --yes --wait",
        "osmosis eval submit configs/eval/multiply-local-openai.toml --model CHECKPOINT",
      ),
    )
    .action(
      run(async (context, config: string, options: SubmitOptions) =>
        (await import("../runs/submit.ts")).submitRun(context, "eval", config, options),
      ),
    );

  group
    .command("list")
    .description("list the workspace's evaluation runs, newest first")
    .option("--limit <n>", "how many at most (1-50)", wholeNumber(1, 50))
    .option("--all", "every page")
    .addHelpText("after", examples("osmosis eval list", "osmosis eval list --all --json"))
    .action(
      run(async (context, options: ListOptions) =>
        (await import("../runs/list.ts")).listEvalRuns(context, options),
      ),
    );

  group
    .command("info <name>")
    .description("show a run: state, results, configuration, metrics")
    .option("-o, --output <path>", "write the metrics to this file or folder as JSON")
    .addHelpText("after", examples("osmosis eval info NAME", "osmosis eval info NAME -o metrics.json"))
    .action(
      run(async (context, name: string, options: { output?: string }) =>
        (await import("../runs/eval-info.ts")).evalInfo(context, name, options),
      ),
    );

  addRollouts(group, run, "eval");
  addExport(group, run, "eval");

  group
    .command("logs <name>")
    .description("show a run's log, or follow it")
    .option("-f, --follow", "go on with new lines until the run has ended")
    .option("--limit <n>", "lines at most (1-200)", wholeNumber(1, 200), 50)
    .option("--cursor <cursor>", "go on from the next_cursor of an earlier page")
    .addHelpText("after", examples("osmosis eval logs NAME", "osmosis eval logs NAME --follow"))
    .action(
      run(async (context, name: string, options: LogOptions) =>
        (await import("../runs/logs.ts")).runLogs(context, "eval", name, options),
      ),
    );

  group
    .command("stop <name>")
    .description("stop a run; what it has done so far stays")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples("osmosis eval stop NAME --yes"))
    .action(
      run(async (context, name: string, options: { yes?: boolean }) =>
        (await import("../runs/stop.ts")).stopRun(context, "eval", name, options),
      ),
    );
}

import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples, type SubmitOptions } from "./options.ts";
import { addRuns } from "./runs.ts";

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
    .command("compare <a> <b>")
    .description("pair two evaluations of the same data set row by row: what is B better by than A")
    .addHelpText(
      "after",
      `\nThe difference has a 95 % interval: one that holds 0 is no difference. Rows are paired only where both measured the\nsame version of a data set, on the rows that both have.\n${examples(
        "osmosis eval compare BASE CHECKPOINT",
        "osmosis eval compare BASE CHECKPOINT --json",
      )}`,
    )
    .action(
      run(async (context, a: string, b: string) =>
        (await import("../runs/compare-evals.ts")).compareEvals(context, a, b),
      ),
    );

  addRuns(group, run, "eval");
}

import { LogLevel } from "@osmosis/protocol";
import { Option, type Command } from "commander";
import type { Run } from "./run-command.ts";
import { RUN_WORD, type RunKind } from "../runs/kind.ts";
import { addExport } from "./analysis.ts";
import { examples, wholeNumber, type ListOptions, type LogOptions } from "./options.ts";
import { addRollouts } from "./rollouts.ts";

/** What both kinds of run have: `list`, `info`, `rollouts`, `export`, `logs` and `stop`. */
export function addRuns(group: Command, run: Run, kind: RunKind): void {
  group
    .command("list")
    .description(`list the workspace's ${RUN_WORD[kind]}s, newest first`)
    .option("--limit <n>", "how many at most (1-50)", wholeNumber(1, 50))
    .option("--all", "every page")
    .addHelpText("after", examples(`osmosis ${kind} list`, `osmosis ${kind} list --all --json`))
    .action(
      run(async (context, options: ListOptions) => {
        const { listEvalRuns, listTrainingRuns } = await import("../runs/list.ts");
        return await (kind === "eval" ? listEvalRuns : listTrainingRuns)(context, options);
      }),
    );

  group
    .command("info <name>")
    .description("show a run: state, results, configuration, metrics")
    .option("-o, --output <path>", "write the metrics to this file or folder as JSON")
    .addHelpText("after", examples(`osmosis ${kind} info NAME`, `osmosis ${kind} info NAME -o metrics.json`))
    .action(
      run(async (context, name: string, options: { output?: string }) =>
        kind === "eval"
          ? (await import("../runs/eval-info.ts")).evalInfo(context, name, options)
          : (await import("../runs/train-info.ts")).trainInfo(context, name, options),
      ),
    );

  addRollouts(group, run, kind);
  addExport(group, run, kind);

  group
    .command("logs <name>")
    .description("show a run's log, or follow it")
    .option("-f, --follow", "go on with new lines until the run has ended")
    .option("--limit <n>", "lines at most (1-200)", wholeNumber(1, 200), 50)
    .option("--cursor <cursor>", "go on from the next_cursor of an earlier page")
    .addOption(new Option("--level <level>", "only lines of this level and above").choices(LogLevel.options))
    .option(
      "--source <source>",
      "only lines with this in the column STEP, or beginning with this word: step, rollout, train, evaluate …",
    )
    .addHelpText(
      "after",
      examples(
        `osmosis ${kind} logs NAME`,
        `osmosis ${kind} logs NAME --follow`,
        `osmosis ${kind} logs NAME --level warning`,
        kind === "train"
          ? "osmosis train logs NAME --source step"
          : "osmosis eval logs NAME --source evaluate",
      ),
    )
    .action(
      run(async (context, name: string, options: LogOptions) =>
        (await import("../runs/logs.ts")).runLogs(context, kind, name, options),
      ),
    );

  group
    .command("stop <name>")
    .description("stop a run; what it has done so far stays")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples(`osmosis ${kind} stop NAME --yes`))
    .action(
      run(async (context, name: string, options: { yes?: boolean }) =>
        (await import("../runs/stop.ts")).stopRun(context, kind, name, options),
      ),
    );
}

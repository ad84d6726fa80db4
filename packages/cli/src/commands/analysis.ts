import { Option, type Command } from "commander";
import { ExportQuery } from "@osmosis/protocol";
import type { Run } from "./run-command.ts";
import type { ExportOptions } from "../runs/export.ts";
import type { RunKind } from "../runs/kind.ts";
import { examples } from "./options.ts";

/** `doctor` and `compare` of training runs. */
export function addAnalysis(group: Command, run: Run): void {
  group
    .command("doctor <name>")
    .description("say what is wrong with a run, or what would let it learn more, with the numbers behind it")
    .addHelpText(
      "after",
      `\nAlarms first: silence, stalls, failing rollouts. Advice only where there is no alarm.\n${examples(
        "osmosis train doctor NAME",
        "osmosis train doctor NAME --json",
      )}`,
    )
    .action(
      run(async (context, name: string) => (await import("../runs/doctor.ts")).diagnoseRun(context, name)),
    );

  group
    .command("compare <names...>")
    .description("line up two runs or more: curves, settings that differ, validation row by row")
    .addHelpText("after", examples("osmosis train compare A B", "osmosis train compare A B C --json"))
    .action(
      run(async (context, names: string[]) =>
        (await import("../runs/compare.ts")).compareRuns(context, names),
      ),
    );
}

/** `export` of a kind of run. */
export function addExport(group: Command, run: Run, kind: RunKind): void {
  const command = group
    .command("export <name>")
    .description(
      kind === "train"
        ? "write a run's metrics or rollouts to a file, every one of them"
        : "write a run's rollouts to a file, every one of them",
    );
  if (kind === "train") {
    command.addOption(
      new Option("--what <what>", "one line a step, or one a rollout")
        .choices(ExportQuery.shape.what.unwrap().options)
        .default("metrics"),
    );
  }
  command
    .addOption(
      new Option("--format <format>", "JSON lines, complete; or a table, without conversations")
        .choices(ExportQuery.shape.format.unwrap().options)
        .default("jsonl"),
    )
    .option("-o, --output <path>", "file or folder; by default a file here, named for the run")
    .option("--overwrite", "replace the file if there is one")
    .addHelpText(
      "after",
      kind === "train"
        ? examples(
            "osmosis train export NAME --format csv",
            "osmosis train export NAME --what rollouts -o rollouts.jsonl",
          )
        : examples("osmosis eval export NAME", "osmosis eval export NAME --format csv -o results.csv"),
    )
    .action(
      run(async (context, name: string, options: ExportOptions) =>
        (await import("../runs/export.ts")).exportRun(context, kind, name, options),
      ),
    );
}
